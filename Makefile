# `make demo`, `make test`, `make docs`: each sets up a virtual environment first, once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
TESTS ?= tests/cli tests/store tests/test_files.py

.PHONY: demo test test-environments docs lint types clean

demo: $(VENV)/.installed
	$(BIN)/epibench run street-depth-quick --out demo/street-depth
	$(BIN)/epibench run street-segmentation-quick --out demo/street-segmentation
	$(BIN)/epibench report demo/street-depth demo/street-segmentation --out demo/report.html

test: lint types
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Not part of `test`: the same tests with other terminals, locales, umasks, temporary folders and homes.
test-environments: $(VENV)/.installed
	PYTHON=$(BIN)/python tests/environments.sh $(TESTS)

# The documentation as a site, in site/; a link that leads nowhere is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "setting up $(VENV): a minute or two, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=24"
	$(BIN)/pip install --constraint constraints.txt --editable ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) demo scored site
