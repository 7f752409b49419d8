"""README and documentation match the code: tables are generated, code blocks run."""

import csv
import json
import re
from pathlib import Path

import pytest

from docs._hooks.headline import ROWS, results_table
from propall.bench.results import targets_table
from propall.cli import main
from propall.paper import results_io
from propall.paper.evidence import Evidence
from propall.paper.pages import reproduction_markdown
from tests.documentation.running import run_page

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert links
    assert not missing


def test_every_room_is_on_the_map():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "propall"
    rooms = [f"`{path.name}/`" for path in package.iterdir() if (path / "__init__.py").exists()]
    assert len(rooms) > 10
    assert not [room for room in rooms if room not in text]


def test_the_table_of_methods_is_the_registry_s(capsys):
    with pytest.raises(SystemExit):
        main(["methods", "--markdown"])
    table = capsys.readouterr().out.strip()
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("--markdown` -->\n")
    assert rest.partition("\n<!-- end of methods -->")[0] == table, "refresh it: propall methods --markdown"


def test_the_table_of_views_is_the_registry_s(capsys):
    with pytest.raises(SystemExit):
        main(["methods", "--views", "--markdown"])
    table = capsys.readouterr().out.strip()
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("--views --markdown` -->\n")
    assert rest.partition("\n<!-- end of views -->")[0] == table, (
        "refresh it: propall methods --views --markdown"
    )


def test_the_code_runs():
    result = run_page(README, kinds=("python",))
    assert len(result.blocks) >= 2
    assert not result.problems


@pytest.mark.slow  # `make docs` runs it too
def test_the_commands_run():
    result = run_page(README, kinds=("hidden", "console"))
    assert [bool(block.skipped) for block in result.blocks] == [True, False, False]
    assert not result.problems


def test_the_figures_are_those_of_the_benchmarks():
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- made by `propall bench figures` -->\n")
    table = targets_table(ROOT / "benchmarks")
    assert rest.partition("\n<!-- end of figures -->")[0] == table, "refresh it: propall bench figures"
    train = json.loads((ROOT / "benchmarks" / "h200_train.json").read_text(encoding="utf-8"))
    eager, *_, stacked = (line["more"]["per_run_and_epoch"] for line in train["lines"])
    assert (
        f"takes a plain PyTorch loop {eager / 1e3:.1f} s; 100 stacked runs take {stacked:.1f} ms each" in text
    )
    readme = " ".join(README.read_text(encoding="utf-8").split())
    assert f"take {stacked:.1f} ms per run and epoch of 60 000 images on one H200, where" in readme
    assert f"a plain PyTorch loop takes {eager / 1e3:.1f} s" in readme
    resnet = json.loads((ROOT / "benchmarks" / "h200_resnet.json").read_text(encoding="utf-8"))
    eager, _, captured, compiled = (line["value"]["median"] for line in resnet["lines"])
    times = f"{eager:.1f} s, captured {captured:.2f} s, captured and compiled {compiled:.2f} s"
    assert f"ResNet-32 takes the plain loop {times}" in text.replace("\n", " ")


def test_the_annotators_are_those_of_the_results():
    text = " ".join(README.read_text(encoding="utf-8").split())
    found = json.loads((ROOT / "results" / "annotators.json").read_text(encoding="utf-8"))
    jobs, people = found["jobs"], found["people"]
    resolved = jobs["propall/candidates/held out"]
    tested = [jobs[name]["accuracy"] for name in ("cc/majority/whole", "propall/candidates/whole")]
    sentences = [
        f"name the true label in {100 * (1 - people['without_truth']):.1f} % together",
        f"a ResNet-32 reaches {100 * tested[0]:.2f} %; on the sets of answers, {100 * tested[1]:.2f} %",
        f"{100 * people['majority']:.2f} % are correct by majority, {100 * resolved['resolved']:.2f} % "
        f"resolved by ProPaLL, {100 * resolved['weighed']:.2f} % if answers also count as votes",
    ]
    crowds = json.loads((ROOT / "results" / "crowds_cifar10n.json").read_text(encoding="utf-8"))
    best = crowds["rows"]["again"]["model_and_answers"]
    sentences.append(f"a convnet with views, and answers as votes, name {100 * best:.2f} %")
    assert not [sentence for sentence in sentences if sentence not in text]


def test_the_table_of_results_is_that_of_the_results():
    text = README.read_text(encoding="utf-8").partition("<!-- results")[2].partition("<!-- end of results")[0]
    table = results_table()
    assert len(table.splitlines()) > 2 + len(ROWS)
    assert table in text, f"the table must be\n{table}"
    shown = {
        f"modern/{name}" for name in ("uniform-0.1", "uniform-0.5", "instance", "complementary", "cifar10n")
    }
    with (ROOT / "results" / "modern.csv").open(encoding="utf-8", newline="") as file:
        seconds = sorted(float(run["seconds"]) for run in csv.DictReader(file) if run["cell"] in shown)
    assert 48 < seconds[len(seconds) // 2] < 72  # "about a minute each"


def test_the_page_of_results_is_that_of_the_results():
    root = README.parent
    with results_io.open_folder(root / "results") as store:
        generated = reproduction_markdown(Evidence(store)).splitlines()
    doc = (root / "docs" / "reproduction.md").read_text(encoding="utf-8").splitlines()
    differs = [f"{new}\ninstead of\n{old}" for new, old in zip(generated, doc, strict=False) if new != old]
    refresh = "refresh it: propall report --results results/ --markdown docs/reproduction.md"
    assert len(generated) == len(doc), refresh
    assert not differs, f"{refresh}\n{differs[0]}"
