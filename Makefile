# Everything runs in one virtual environment that the first target makes.
VENV   ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready

.PHONY: demo test attacks lint types bench docs docs-check clean

demo: $(READY)
	$(BIN)/ngramkit build-datastore --corpus python-stdlib
	$(BIN)/ngramkit build-frozen --corpus python-stdlib
	$(BIN)/python -m ngramkit.demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

attacks: $(READY)
	$(BIN)/python -m tests.attacks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

docs: $(READY)
	$(BIN)/python -m tests.doc_pages --write

docs-check: $(READY)
	$(BIN)/python -m tests.doc_pages

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
