"""What `propall doctor` finds, and what it says of a broken installation."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from propall import diagnostics
from propall.cli import main
from propall.data.catalog import DATASETS
from propall.diagnostics import EXTRAS, LOWEST_PYTHON, REQUIRED, Extra, Requirement, diagnose

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main(["doctor", *words])
        return stop.value.code or 0, capsys.readouterr().out

    return call


@pytest.mark.skipif(not PROJECT.exists(), reason="needs pyproject.toml of the repository")
def test_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]

    def lowest(requirements):
        return dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", each).groups() for each in requirements)

    assert {package.name: package.lowest for package in REQUIRED} == lowest(project["dependencies"])
    declared = project["optional-dependencies"]
    for_development = {"dev", "docs", "peers"}
    named = {extra.name: extra for extra in EXTRAS if "propall[" in extra.install}
    assert set(named) == set(declared) - for_development
    for name, extra in named.items():
        assert extra.install == f"'propall[{name}]'"
        assert {package.name: package.lowest for package in extra.packages} == lowest(declared[name])
    assert project["requires-python"] == f">={'.'.join(map(str, LOWEST_PYTHON))}"


def test_a_working_installation_has_status_0(run, tmp_path) -> None:
    code, out = run()
    assert code == 0
    assert "Everything that is required works." in out
    for part in ("torch", "scikit-learn", "cpu", str(tmp_path), "propall data get mnist", "none yet"):
        assert part in out, part


def test_json_holds_everything(run, tmp_path) -> None:
    code, out = run("--json")
    found = json.loads(out)
    assert code == 0
    assert found["problems"] == []
    assert {row["name"] for row in found["data"]} == set(DATASETS)
    assert {row["name"] for row in found["data"] if row["present"]} >= {"digits", "blobs"}
    assert found["data_folder"] == str(tmp_path)
    assert found["devices"][-1]["name"] == "cpu"
    assert all(free > 0 for free in found["free_disk"].values())
    assert all(package["version"] for package in found["packages"])


def test_a_missing_package_is_named_with_its_remedy(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)  # as if it were not installed
    code, out = run()
    assert code == 1
    assert "jinja2: not installed; pip install 'jinja2>=3.1'." in out
    assert "1 problem" in out


def test_a_package_that_does_not_load_or_is_old_is_a_problem(monkeypatch, tmp_path) -> None:
    (tmp_path / "broken_on_purpose.py").write_text("raise OSError('a library is missing')\n")
    monkeypatch.syspath_prepend(tmp_path)
    required = (Requirement("broken", "broken_on_purpose", "1"), Requirement("numpy", "numpy", "999.1"))
    monkeypatch.setattr(diagnostics, "REQUIRED", required)
    first, second = diagnose(tmp_path / "none").problems
    assert first == "broken: cannot be imported (a library is missing); pip install 'broken>=1'."
    assert second.startswith("numpy: ")
    assert "is too old; pip install 'numpy>=999.1'" in second


def test_extras_that_are_absent_or_old_say_what_they_are_for(run, monkeypatch) -> None:
    absent = Extra("absent", (Requirement("no-such-package", "none"),), "reading minds", "'propall[absent]'")
    old = Extra("old", (Requirement("numpy", "numpy", "999"),), "tomorrow's numbers", "'propall[old]'")
    monkeypatch.setattr(diagnostics, "EXTRAS", (absent, old))
    code, out = run()
    assert code == 0, "extras are optional"
    assert re.search(r"reading minds +none +pip install 'propall\[absent\]'", out)
    assert re.search(r"tomorrow's numbers +numpy [\d.]+ +pip install 'propall\[old\]'", out)
    assert "Not installed: absent, old." in out


def test_the_store_is_counted_and_a_damaged_one_is_not_a_defect_of_the_installation(run, tmp_path) -> None:
    store = Path(__file__).parent / "compatibility" / "store" / "results.sqlite"
    assert "8 results" in run("--store", str(store))[1]
    (tmp_path / "bad.sqlite").write_bytes(b"no database at all, but long enough to be read" * 40)
    code, out = run("--store", str(tmp_path / "bad.sqlite"))
    assert code == 0
    assert "bad.sqlite is not a store of results" in out


def test_optional_packages_are_found_without_importing_them(monkeypatch, tmp_path) -> None:
    expected = diagnose(tmp_path / "none").extras
    # pandas imports pyarrow and matplotlib imports Pillow.
    for name in ("onnx", "onnxscript", "lightning", "ray", "lightgbm", "xgboost", "openpyxl"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    found = diagnose(tmp_path / "none")
    assert found.extras == expected
    assert found.problems == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_described(tmp_path) -> None:
    found = diagnose(tmp_path / "none")
    assert found.problems == []
    assert found.devices[0].name == "cuda:0"
    assert found.devices[0].memory > 0
    assert found.devices[0].abilities["bfloat16"] in ("yes", "emulated")


def test_every_gpu_is_listed_before_the_cpu(monkeypatch, tmp_path) -> None:
    class Properties:
        major, minor = 7, 5

    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "get_device_properties": lambda index: Properties,
        "get_device_name": lambda device: "A GPU",
        "mem_get_info": lambda index: (3 << 30, 4 << 30),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    found = diagnose(tmp_path / "none")
    assert found.problems == []
    assert [device.name for device in found.devices] == ["cuda:0", "cuda:1", "cpu"]
    assert found.devices[0].description == "A GPU"
    assert found.devices[0].memory == 3 << 30
    assert found.devices[0].abilities["compute capability"] == "7.5"
    assert found.devices[0].abilities["bfloat16"] == "emulated"
