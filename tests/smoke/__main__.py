"""`python -m tests.smoke [--python PYTHON] [--versions lowest|newest|constraints] [--only PACKAGE ...]`.

`--without-torch` compiles all modules and imports those that need no torch, where there is no build of it.
Builds the wheel, installs it into a new virtual environment outside the repository, and runs checks.py there.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
#: Not replaced by `--versions`: builds for the CPU alone are rarely on an index.
FIXED = ("torch",)


def requirements(versions: str, only: list[str]) -> list[str]:
    """The declared dependencies with the versions that are asked for; others as in constraints.txt."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.lower().split("==") for line in lines if "==" in line)
    words = []
    for requirement in project["project"]["dependencies"]:
        name, lowest = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).groups()
        changes = name not in FIXED and (not only or name in only)
        if versions == "lowest" and changes:
            words.append(f"{name}=={lowest}.*" if lowest.count(".") < 2 else f"{name}=={lowest}")
        elif versions == "newest" and changes:
            words.append(name)
        else:
            words.append(f"{name}=={pinned[name.lower()]}")
    return words


def main() -> None:
    """Build, install and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="Interpreter of the new environment.")
    parser.add_argument("--versions", choices=["lowest", "newest", "constraints"], default="constraints")
    parser.add_argument("--only", nargs="*", default=[], help="Change only these packages.")
    parser.add_argument(
        "--without-torch",
        action="store_true",
        help="For an interpreter without a build of torch: imports only.",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smoke") as name:
        folder = Path(name)
        python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        _call(arguments.python, "-m", "venv", folder / "venv")
        pip = [python, "-m", "pip", "install", "--quiet"]
        _call(*pip[:3], "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "wheels", REPOSITORY)
        words = requirements(arguments.versions, arguments.only)
        if arguments.without_torch:
            _call(*pip, *(word for word in words if not word.startswith("torch")))
            _call(*pip, "--no-deps", "--target", folder / "unpacked", next((folder / "wheels").glob("*.whl")))
            imports = REPOSITORY / "tests" / "smoke" / "imports.py"
            raise SystemExit(
                subprocess.run([python, "-I", imports, folder / "unpacked"], cwd=folder).returncode
            )
        _call(*pip, *words)
        _call(*pip, next((folder / "wheels").glob("*.whl")))
        shutil.copytree(REPOSITORY / "tests" / "compatibility", folder / "fixtures")
        shutil.copy(REPOSITORY / "tests" / "smoke" / "checks.py", folder)
        (folder / "empty").mkdir()
        words = [python, "-I", folder / "checks.py", folder / "fixtures"]
        raise SystemExit(subprocess.run(list(map(str, words)), cwd=folder / "empty").returncode)


def _call(*words: object) -> None:
    subprocess.run(list(map(str, words)), check=True)


if __name__ == "__main__":
    main()
