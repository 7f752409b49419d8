"""Version, citation, changelog, bibliography, and what the wheel and the sdist contain."""

import re
import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from importlib.resources import files
from pathlib import Path

import pytest

from propall import __version__

REPOSITORY = Path(__file__).parents[1]
BIBLIOGRAPHY = files("propall.methods").joinpath("references.bib").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", BIBLIOGRAPHY, flags=re.MULTILINE | re.DOTALL)
RELEASES = re.findall(
    r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE
)


@pytest.fixture(scope="module")
def citation():
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    return yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))


def fields(body: str) -> dict[str, str]:
    found = re.findall(r"^  (\w+) = \{(.*?)\},$", body, flags=re.MULTILINE | re.DOTALL)
    return {name: " ".join(value.split()) for name, value in found}


def test_the_newest_release_of_the_changelog_is_this_version(citation) -> None:
    assert RELEASES[0][0] == __version__ == citation["version"]
    assert RELEASES[0][1] == citation["date-released"].isoformat()
    numbers = [tuple(map(int, version.split("."))) for version, _ in RELEASES]
    assert numbers == sorted(numbers, reverse=True)
    assert [day for _, day in RELEASES] == sorted((day for _, day in RELEASES), reverse=True)


def test_the_citation_has_what_its_format_requires_and_names_the_paper(citation) -> None:
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == "BSD-3-Clause"
    (paper,) = citation["references"]
    entry = fields(dict(ENTRIES)["struski2022propall"])
    assert paper["identifiers"][0]["value"] == f"arXiv:{entry['eprint']}"
    assert paper["year"] == int(entry["year"])
    for author in paper["authors"]:
        # Ł and ń are written as commands in BibTeX.
        letters = re.sub(r"[^a-z]", "", author["family-names"].lower().replace("ń", "n"))
        assert letters in re.sub(r"[^a-z]", "", entry["author"].lower())


@pytest.mark.parametrize(("key", "body"), [pytest.param(*entry, id=entry[0]) for entry in ENTRIES])
def test_publications_have_plausible_years_and_identifiers(key: str, body: str) -> None:
    entry = fields(body)
    year = int(entry["year"])
    assert 1900 < year <= date.fromisoformat(RELEASES[0][1]).year
    # Keys are family name, year and a word of the title; a book's year may follow its conference's.
    family, in_key, word = re.fullmatch(r"([a-z]+)(\d{4})([a-z0-9]+)", key).groups()
    assert abs(int(in_key) - year) <= 1
    author = re.sub(r"\\[\"'v`^~]", "", entry["author"]).lower()
    letters = {re.sub(r"[^a-z]", "", author.replace(*umlaut)) for umlaut in (("", ""), ("{a}", "ae"))}
    assert any(family in spelling for spelling in letters)
    if "eprint" in entry:
        month = re.fullmatch(r"(\d\d)(\d\d)\.\d{4,5}", entry["eprint"])
        assert month, entry["eprint"]
        assert 2000 + int(month[1]) <= year, "a preprint is not newer than its publication"
        assert 1 <= int(month[2]) <= 12
    if "doi" in entry:
        assert re.fullmatch(r"10\.\d{4,9}/\S+", entry["doi"])
    if "pages" in entry:
        first, last = map(int, entry["pages"].split("--"))
        assert first < last
    assert len(word) > 1


def test_the_workflow_runs_one_command_on_every_version_that_is_promised() -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["check"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (REPOSITORY / ".ci/run").stat().st_mode & 0o100, "can be executed"
    promised = re.findall(r"Python :: (3\.\d+)", (REPOSITORY / "pyproject.toml").read_text())
    assert promised
    assert set(promised) <= set(job["strategy"]["matrix"]["python"])
    for template in (REPOSITORY / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(template.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, built from the working tree without a network."""
    pytest.importorskip("build", reason="needs build")
    pytest.importorskip("hatchling", reason="needs hatchling")
    folder = tmp_path_factory.mktemp("dist")
    # Both from the tree: by default, the wheel would be built from the sdist, which takes twice as long.
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", folder]
    subprocess.run(list(map(str, [*command, REPOSITORY])), check=True, capture_output=True)
    return folder


def test_the_wheel_holds_the_package_alone(built) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"propall-{__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < 2_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"propall-{__version__}.dist-info/METADATA").decode()
    info = f"propall-{__version__}.dist-info/"
    assert all(name.startswith(("propall/", info)) for name in names)
    endings = {Path(name).suffix for name in names if not name.startswith(info)}
    assert endings == {".py", ".typed", ".bib", ".csv", ".css", ".js", ".j2"}
    tables = {name for name in names if name.endswith(".csv")}
    assert tables == {"propall/paper/runtime_estimates.csv", "propall/paper/tables/published.csv"}
    tree = {
        path.relative_to(REPOSITORY / "src").as_posix()
        for path in (REPOSITORY / "src" / "propall").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(info)} == tree
    assert {f"{info}entry_points.txt", f"{info}licenses/LICENSE"} <= names
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: BSD-3-Clause\n" in metadata


def test_the_sdist_holds_no_data_and_no_results(built) -> None:
    (sdist,) = built.glob("*.tar.gz")
    assert sdist.stat().st_size < 2_000_000
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.split("/")[0] for name in names if name} <= {
        *("src", "examples", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"),
        *("CITATION.cff", "pyproject.toml", "PKG-INFO", ".gitignore"),
    }
    assert {"pyproject.toml", "src/propall/__init__.py", "LICENSE", "README.md", "CITATION.cff"} <= names


def test_twine_accepts_both(built) -> None:
    pytest.importorskip("twine", reason="needs twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2
