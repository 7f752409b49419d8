# Two commands: `make demo` shows what propall does, `make test` checks that it does it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# Two test processes share the cores, so each uses one thread.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal
WITH_SHAPES := PROPALL_CHECK_SHAPES=1

.PHONY: demo test test-all docs dist faults interruptions smoke lint format clean

demo: $(VENV)/.installed
	$(BIN)/propall demo

test: $(VENV)/.installed-dev
	$(WITH_SHAPES) $(PYTEST) -m "not slow and not compiled"
	$(PYTEST) -m "compiled and not slow"

test-all: $(VENV)/.installed-dev
	$(WITH_SHAPES) $(PYTEST) -m "not compiled"
	$(PYTEST) -m compiled

# Runs the code on the pages, then builds the site into build/site; needs no network, warnings are errors.
# build/documentation/ has the time of every block and a summary.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m tests.documentation
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Hundreds of malformed files for everything that reads one, each in a process of its own; ends with a table.
faults: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --inputs 300

# Commands killed, out of space, without permission, or whose output is deleted, at up to 30 changes of files.
interruptions: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.interruptions --moments 30

# The wheel in a new environment outside the repository.
smoke:
	$(PYTHON) -m tests.smoke

# The wheel and the sdist in dist/, checked as a package index does.
dist: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests docs/_hooks
	$(BIN)/ruff format --check src tests docs/_hooks
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix src tests docs/_hooks
	$(BIN)/ruff format src tests docs/_hooks

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) demo runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
