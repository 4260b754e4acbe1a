# The two commands: `make demo` and `make test`. Both set up a virtual environment first, once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test lint types clean

demo: $(VENV)/.installed
	$(BIN)/epibench run street-depth-quick --out demo/street-depth
	$(BIN)/epibench run street-segmentation-quick --out demo/street-segmentation
	$(BIN)/epibench report demo/street-depth demo/street-segmentation --out demo/report.html

test: lint types
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

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

clean:
	rm -rf $(VENV) demo scored
