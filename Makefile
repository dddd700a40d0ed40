# The commands of the README. Everything runs in .venv, installed from the exact versions in .lock/.

PYTHON ?= python3
BIN := .venv/bin

export DAGSTER_HOME ?= $(CURDIR)/dagster_home
export DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME := pipeline.definitions
export DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY := $(CURDIR)

# Dagster's commands announce on every start which command will replace them.
export PYTHONWARNINGS ?= ignore:Function

.PHONY: setup pretrain ui test test-all format

setup: .venv/.runtime

pretrain: setup
	@$(BIN)/dagster job execute -j pretrain && $(BIN)/python -m pipeline summary

ui: setup
	$(BIN)/dagster dev --host 127.0.0.1 --port 3000 --module-name pipeline.definitions

test: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow" -n 2 --dist loadgroup

test-all: .venv/.test
	$(BIN)/pytest --hypothesis-profile=default

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/.runtime: .lock/runtime.txt .lock/activate pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r .lock/runtime.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	grep -q GROUNDWORK .venv/bin/activate || sed 's|@ROOT@|$(CURDIR)|' .lock/activate >> .venv/bin/activate
	@touch $@

.venv/.test: .venv/.runtime .lock/test.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r .lock/test.txt
	@touch $@
