# Two commands do all the set-up on a fresh machine that has Python 3.11 or newer: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := build/demo

.PHONY: demo test test-fast check install clean

demo: $(VENV)/.installed
	$(BIN)/contrasweep run search_spaces.quickstart:STUDY --storage $(DEMO)/runs --tracking sqlite:///$(DEMO)/mlflow.db
	$(BIN)/contrasweep report search_spaces.quickstart:STUDY --storage $(DEMO)/runs --format html --output $(DEMO)/report.html
	@echo
	@echo "report:    $(DEMO)/report.html"
	@echo "MLflow UI: $(BIN)/contrasweep ui --tracking sqlite:///$(DEMO)/mlflow.db --study quickstart"

test: $(VENV)/.installed-test check
	$(BIN)/pytest -n 2 --dist loadgroup

test-fast: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow"

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/.installed

$(VENV)/bin/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraints constraints.txt --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraints constraints.txt --editable ".[test]"
	@touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
