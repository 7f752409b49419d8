"""Compile every module of the wheel with warnings as errors, and import those that need no torch."""

import importlib
import pkgutil
import sys
import warnings
from pathlib import Path


def main() -> None:
    """Print how many modules compile and import; fail on any other error than a missing torch."""
    sys.path.insert(0, sys.argv[1])  # the unpacked wheel, whose metadata would ask for torch
    import propall

    warnings.simplefilter("error")
    compiled = 0
    for file in sorted(Path(propall.__file__).parent.rglob("*.py")):
        compile(file.read_text(encoding="utf-8"), str(file), "exec")
        compiled += 1
    warnings.simplefilter("default")
    imported, waiting = [], []
    for module in pkgutil.walk_packages(propall.__path__, "propall.", onerror=lambda name: None):
        if module.name.endswith("__main__"):
            continue  # importing it runs it
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "torch":
                raise
            waiting.append(module.name)
        else:
            imported.append(module.name)
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}: {compiled} files compile without a warning, {len(imported)} modules import,")
    print(f"{len(waiting)} need torch. Imported: {', '.join(imported)}")


if __name__ == "__main__":
    main()
