"""What an installation has, and what is missing for what; `propall doctor` prints it."""

import importlib
import os
import platform
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from propall import __version__
from propall.wording import plural

Result = TypeVar("Result")


class Requirement(NamedTuple):
    """A package, the name it is imported by, and the lowest version that works ("" if any)."""

    name: str
    module: str
    lowest: str = ""


class Extra(NamedTuple):
    """Optional packages, what they are for, and the words after `pip install`."""

    name: str
    packages: tuple[Requirement, ...]
    purpose: str
    install: str


LOWEST_PYTHON = (3, 11)
#: As in pyproject.toml, which an installed package does not have; a test compares the two.
REQUIRED = (
    Requirement("torch", "torch", "2.6"),
    Requirement("numpy", "numpy", "1.26"),
    Requirement("scipy", "scipy", "1.11"),
    Requirement("scikit-learn", "sklearn", "1.6"),
    Requirement("pandas", "pandas", "2.1"),
    Requirement("safetensors", "safetensors", "0.4"),
    Requirement("typer", "typer", "0.19"),
    Requirement("rich", "rich", "13"),
    Requirement("matplotlib", "matplotlib", "3.8"),
    Requirement("jinja2", "jinja2", "3.1"),
    Requirement("jaxtyping", "jaxtyping", "0.2.30"),
)
EXTRAS = (
    Extra(
        "tables",
        (Requirement("pyarrow", "pyarrow", "14"), Requirement("openpyxl", "openpyxl", "3.1")),
        "Parquet, Feather and .xlsx files",
        "'propall[tables]'",
    ),
    Extra("images", (Requirement("pillow", "PIL", "10"),), "a column of image files", "'propall[images]'"),
    Extra(
        "export",
        (Requirement("onnx", "onnx", "1.16"), Requirement("onnxscript", "onnxscript", "0.1")),
        "propall export: ONNX files",
        "'propall[export]'",
    ),
    Extra(
        "lightning",
        (Requirement("lightning", "lightning", "2.4"),),
        "propall.lightning: several devices",
        "'propall[lightning]'",
    ),
    Extra(
        "ray",
        (Requirement("ray", "ray", "2.9"),),
        "propall reproduce --launcher ray: several machines",
        "'propall[ray]'",
    ),
    Extra("xlrd", (Requirement("xlrd", "xlrd"),), "reading .xls files", "xlrd"),
    Extra("odfpy", (Requirement("odfpy", "odf"),), ".ods files", "odfpy"),
    Extra(
        "lightgbm",
        (Requirement("lightgbm", "lightgbm"),),
        "CandidateClassifier with LightGBM",
        "lightgbm",
    ),
    Extra("xgboost", (Requirement("xgboost", "xgboost"),), "CandidateClassifier with XGBoost", "xgboost"),
)


@dataclass(frozen=True)
class PackageStatus:
    """A required package: its version, and what is wrong with it ("" if nothing)."""

    name: str
    version: str
    problem: str = ""


@dataclass(frozen=True)
class ExtraStatus:
    """Optional packages: the versions of those that are installed, and the names of those that are not."""

    name: str
    purpose: str
    installed: dict[str, str]
    missing: list[str]
    install: str


@dataclass(frozen=True)
class DeviceStatus:
    """A device that training can use.

    Attributes:
        name: for `--device`.
        description: the model of a GPU, or the kind and threads of a CPU.
        memory: free memory in bytes; None if unknown.
        abilities: whether or how well the device can do each thing.
    """

    name: str
    description: str
    memory: int | None
    abilities: dict[str, str]


@dataclass(frozen=True)
class DataStatus:
    """A data set: whether its files are present, where they are looked for, and how to get them."""

    name: str
    present: bool
    where: str
    get: str


@dataclass(frozen=True)
class Diagnosis:
    """What an installation has.

    Attributes:
        propall: version.
        python: version and implementation.
        system: operating system and machine.
        packages: the required packages.
        extras: the optional packages.
        devices: what training can run on.
        data_folder: where data sets are looked for.
        data: the data sets.
        store: the file of results and how many it has; empty if it was not read.
        free_disk: bytes, by folder.
        problems: why something required does not work; empty for a working installation.
    """

    propall: str
    python: str
    system: str
    packages: list[PackageStatus]
    extras: list[ExtraStatus]
    devices: list[DeviceStatus] = field(default_factory=list)
    data_folder: str = ""
    data: list[DataStatus] = field(default_factory=list)
    store: str = ""
    free_disk: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        return asdict(self)


def diagnose(store: Path) -> Diagnosis:
    """Look at the installation: import what is required, find what is optional, and change nothing."""
    problems = []
    if sys.version_info[:2] < LOWEST_PYTHON:
        lowest = ".".join(map(str, LOWEST_PYTHON))
        problems.append(f"python: {platform.python_version()} is too old; propall needs {lowest} or newer.")
    packages = [_check_required(requirement) for requirement in REQUIRED]
    problems += [f"{package.name}: {package.problem}" for package in packages if package.problem]

    def attempt(what: str, look: Callable[[], Result], otherwise: Result) -> Result:
        try:
            return look()
        except Exception as error:  # anything may be broken here, and the rest of the answer is still useful
            problems.append(f"{what}: {type(error).__name__}: {error}")
            return otherwise

    devices: list[DeviceStatus] = []
    data: list[DataStatus] = []
    folder = Path.cwd()
    if not problems:
        devices = attempt("devices", _devices, devices)
        folder, data = attempt("data", _data, (folder, data))
    return Diagnosis(
        __version__,
        f"{platform.python_version()} ({platform.python_implementation()})",
        f"{platform.system()} {platform.release()}, {platform.machine()}",
        packages,
        [_find_extra(extra) for extra in EXTRAS],
        devices,
        str(folder),
        data,
        "" if problems else attempt("store", lambda: _describe_store(store), ""),
        {str(place): _free_disk(place) for place in dict.fromkeys((Path.cwd(), folder))},
        problems,
    )


def _check_required(requirement: Requirement) -> PackageStatus:
    """Import a package, because an installed one may still not load."""
    installed = _version(requirement.name)
    install = f"pip install '{requirement.name}>={requirement.lowest}'"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(requirement.module)
    except ModuleNotFoundError as error:
        if error.name == requirement.module:
            return PackageStatus(requirement.name, installed, f"not installed; {install}.")
        return PackageStatus(requirement.name, installed, f"cannot be imported ({error}); {install}.")
    except Exception as error:
        return PackageStatus(requirement.name, installed, f"cannot be imported ({error}); {install}.")
    if installed and _numbers(installed) < _numbers(requirement.lowest):
        return PackageStatus(requirement.name, installed, f"{installed} is too old; {install}.")
    return PackageStatus(requirement.name, installed)


def _find_extra(extra: Extra) -> ExtraStatus:
    versions = {package.name: _version(package.name) for package in extra.packages}
    # The CPU build of XGBoost is a package of another name.
    found = {name: known or _version(f"{name}-cpu") for name, known in versions.items()}
    missing = [
        package.name
        for package in extra.packages
        if not found[package.name] or _numbers(found[package.name]) < _numbers(package.lowest)
    ]
    installed = {name: known for name, known in found.items() if known}
    return ExtraStatus(extra.name, extra.purpose, installed, missing, f"pip install {extra.install}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _numbers(text: str) -> tuple[int, ...]:
    """The release numbers of a version: (2, 11, 0) of 2.11.0+cu130."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match.group().split("."))) if match else ()


def _devices() -> list[DeviceStatus]:
    import torch

    from propall.kernels.dispatch import HAS_TRITON
    from propall.provenance import available_memory, hardware

    compiler = _c_compiler()
    needs_compiler = "no: needs a C++ compiler such as g++"
    devices = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        compiles = "no: needs Triton" if not HAS_TRITON else "yes" if compiler else needs_compiler
        abilities = {
            "compute capability": f"{properties.major}.{properties.minor}",
            "bfloat16": "yes" if properties.major >= 8 else "emulated",
            "fused kernels (Triton)": "yes" if HAS_TRITON else "no: pip install triton",
            "torch.compile": compiles,
        }
        free, _ = torch.cuda.mem_get_info(index)
        devices.append(DeviceStatus(f"cuda:{index}", hardware(f"cuda:{index}"), free, abilities))
    abilities = {
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch.compile": "yes" if compiler else needs_compiler,
    }
    devices.append(DeviceStatus("cpu", hardware("cpu"), available_memory(), abilities))
    return devices


def _c_compiler() -> str | None:
    names = (os.environ.get("CXX"), "g++", "clang++", "cl")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _data() -> tuple[Path, list[DataStatus]]:
    from propall.data.download import status
    from propall.data.files import data_root

    rows = [
        DataStatus(
            row.loader.name, row.present, "built in" if row.where is None else str(row.where), row.note
        )
        for row in status()
    ]
    return data_root(), rows


def _describe_store(path: Path) -> str:
    if not path.exists():
        return f"{path}: none yet"
    from propall.paper.store import Store, StoreError

    try:
        with Store(path, read_only=True) as results:
            return f"{path}: {plural(len(results), 'result')}"
    except StoreError as error:  # a file that nothing else needs
        return str(error)


def _free_disk(folder: Path) -> int:
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(existing).free
