# Two commands do all the set-up on a fresh machine that has Python 3.11 or newer: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
PINS ?= --constraints constraints.txt
PART ?= 1/1
BIN := $(VENV)/bin
DEMO := build/demo

.PHONY: demo test tests test-long test-nightly test-newest test-fast release-check gpu-test same check docs pictures install requirements clean

demo: $(VENV)/.installed
	$(BIN)/contrasweep run contrasweep.search_spaces.demo:STUDY --storage $(DEMO)/runs --tracking sqlite:///$(DEMO)/mlflow.db
	$(BIN)/contrasweep report contrasweep.search_spaces.demo:STUDY --storage $(DEMO)/runs --format html --output $(DEMO)/report.html
	@echo
	@echo "report:    $(DEMO)/report.html"
	@echo "MLflow UI: $(BIN)/contrasweep ui --tracking sqlite:///$(DEMO)/mlflow.db --study demo"

test: $(VENV)/.installed-test  ## the checks of style, types and imports beside the tests: they use one core
	$(MAKE) --no-print-directory --jobs 2 check tests

tests: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 --dist loadgroup --durations=15 -m "not long and not nightly"

test-long: $(VENV)/.installed-test  ## three at once on two cores: they mostly wait. PART=2/4: the second of four parts
	$(BIN)/pytest -n 3 --dist loadgroup --durations=15 -m "long and not nightly" $$(grep -rl --include='test_*.py' mark.long tests \
	    | sort | awk -v part=$(PART) 'BEGIN {split(part, p, "/")} NR % p[2] == p[1] % p[2]')

test-nightly: $(VENV)/.installed-test  ## a fault at every call of a storage (CONTRASWEEP_STORE_FAULT replays one), every command over every forged storage
	$(BIN)/pytest -n 2 -m nightly $$(grep -rl --include='test_*.py' mark.nightly tests)

test-newest:  ## the fast tests with the newest releases that the bounds of pyproject.toml allow
	$(MAKE) --no-print-directory tests VENV=build/newest PINS=

test-fast: $(VENV)/.installed-test
	$(BIN)/pytest -n 2 --dist loadgroup --durations=15 -m "not slow and not long and not nightly"

release-check: $(VENV)/bin/uv  ## wheel and source distribution, installed and tried outside the repository
	.ci/release-check $(BIN)

gpu-test: $(VENV)/.installed  ## correctness on this machine's GPU: losses, bit-equal resume, memory limits
	$(BIN)/python -m benchmarks.gpu --only correctness --output build/gpu

same: $(VENV)/.installed  ## small studies from the commit before and from this tree: their numbers are equal to the bit
	$(BIN)/python -m benchmarks.same

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "site: build/site/index.html"

pictures: PICTURES := /tmp/contrasweep-pictures
pictures: $(VENV)/.installed-test  ## the pictures of the docs; needs Chromium and TeX. Reports show their folder: a neutral one
	rm -rf $(PICTURES)
	$(MAKE) demo DEMO=$(PICTURES)/demo
	$(BIN)/python docs/take_pictures.py $(PICTURES)

install: $(VENV)/.installed

$(VENV)/bin/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(PINS) --editable ".[all]"
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(PINS) --editable ".[test]"
	@touch $@

requirements: $(VENV)/.installed  ## build/requirements.txt: the versions of constraints.txt with the hashes of their files
	mkdir -p build
	$(BIN)/uv pip compile --quiet --python-version 3.11 --constraints constraints.txt --generate-hashes --no-header \
	    --no-annotate --extra all --output-file build/requirements.txt pyproject.toml

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
