# goodwatch: `make help` lists what there is. pip takes its index from the environment or its own configuration.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format engine-test render-boards lock lock-check packages clean

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
GOODWATCH_ENGINE_DIR ?= .engine-test
LOCK_PYTHONS ?= python3.11 python3.12

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
RUN := $(BIN)/python -m

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
	  printf '  make %-12s %s\n' "$$name" "$$what"; done

demo: $(VENV)/.runtime ## see goodwatch at work: no engine, GPU or configuration needed
	@$(BIN)/goodwatch demo

test: packages $(VENV)/.dev ## install what the checks need, then run them all
	@$(MAKE) --no-print-directory lint
	@echo "== pytest"
	@$(RUN) pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev ## format check, ruff, mypy and import rules
	@echo "== ruff format"
	@$(RUN) ruff format --check .
	@echo "== ruff"
	@$(RUN) ruff check .
	@echo "== mypy"
	@$(RUN) mypy
	@echo "== lint-imports"
	@$(BIN)/lint-imports

format: $(VENV)/.dev ## rewrite the sources in the common format
	@$(RUN) ruff check --fix-only --quiet .
	@$(RUN) ruff format .

engine-test: $(VENV)/.dev ## check goodwatch against a real vLLM on the CPU (15 minutes, 3.5 GB; see docs/engine-test.md)
	@echo "== engine"
	@$(RUN) tests.engine.setup "$(GOODWATCH_ENGINE_DIR)"
	@echo "== pytest"
	@GOODWATCH_ENGINE_TEST=1 GOODWATCH_ENGINE_DIR="$(GOODWATCH_ENGINE_DIR)" $(RUN) pytest tests/engine -s $(PYTEST_ARGS)

render-boards: packages $(VENV)/.dev ## draw all Grafana boards with Grafana's own packages (needs node and npm)
	@cd tests/render && npm install --silent --legacy-peer-deps --ignore-scripts && node build.mjs
	@$(RUN) tests.render.draw

lock: ## write the lock files from pyproject.toml
	@$(PYTHON) tools/lock.py $(addprefix --python ,$(LOCK_PYTHONS))

lock-check: ## check the lock files against pyproject.toml
	@$(PYTHON) tools/lock.py --check $(addprefix --python ,$(LOCK_PYTHONS))

packages: # what the tests drive beside Python
	@echo "== Debian packages"
	@PYTHON="$(PYTHON)" tools/packages.sh

clean: ## remove the virtual environment and what the checks left
	@rm -rf "$(VENV)" .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Each stamp is newer than what it was made from, so a second run installs nothing.
$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is missing or too old; goodwatch needs Python 3.11 or newer: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2> /dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "== virtual environment"
	@"$(PYTHON)" -m venv --clear "$(VENV)"

$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@echo "== requirements.lock"
	@$(PIP) install -r requirements.lock
	@$(PIP) install --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@echo "== requirements-dev.lock"
	@$(PIP) install -r requirements-dev.lock
	@touch $@
