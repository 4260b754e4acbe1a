# The two commands: `make demo` and `make test`. Both set up a virtual environment first, once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test lint types clean

demo: $(VENV)/.installed
	$(BIN)/epibench run toy-classification-quick --out demo/toy-classification
	$(BIN)/epibench run toy-regression-quick --out demo/toy-regression
	$(BIN)/epibench report demo/toy-classification demo/toy-regression --out demo/report.html > /dev/null

test: lint types
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=24"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) demo scored
