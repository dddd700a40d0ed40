# The commands of the README. Everything runs in .venv, installed from the exact versions in .lock/.

PYTHON ?= python3
BIN := .venv/bin

export DAGSTER_HOME ?= $(CURDIR)/dagster_home
export DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME := pipeline.definitions
export DAGSTER_CLI_JOB_EXECUTE_WORKING_DIRECTORY := $(CURDIR)

# Bytecode that is not kept is compiled again at every start: 12 s instead of 5 s for a trainer.
unexport PYTHONDONTWRITEBYTECODE

# Dagster's commands announce on every start which command will replace them.
export PYTHONWARNINGS ?= ignore:Function

.PHONY: setup pretrain chat ui test test-all test-cluster test-gpu-paths test-torch torture long-run mutants gpu-report format lock

setup: .venv/.runtime

pretrain: setup
	@echo "Starting Dagster" >&2
	@$(BIN)/python -m pipeline.dagster_command job execute -j pretrain && $(BIN)/python -m pipeline summary

chat: setup
	@echo "Starting Dagster" >&2
	@$(BIN)/python -m pipeline.dagster_command job execute -j align && $(BIN)/python -m pipeline summary --variant dpo

ui: setup
	@echo "The graph, every stage and every checkpoint, in about ten seconds: http://127.0.0.1:3000"
	$(BIN)/python -m pipeline.dagster_command dev --log-level warning --host 127.0.0.1 --port 3000 --module-name pipeline.definitions

test: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/pytest -m "not slow" -n 2 --dist loadgroup

test-all: .venv/.peers
	$(BIN)/pytest --hypothesis-profile=default --no-skips -n 2 --dist loadgroup

test-cluster: .venv/.peers
	$(BIN)/pytest --no-skips -n 0 $(shell grep -rlwE "ray_cluster|s3_server" tests --include='test_*.py')

torture: .venv/.test
	$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

long-run: .venv/.test
	$(BIN)/python -m tests.long_run --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

mutants: .venv/.test
	@$(BIN)/python -c 'import coverage' 2> /dev/null || .lock/install .lock/coverage.txt
	$(BIN)/python -m tests.mutants --n $(or $(N),200) $(if $(SEED),--seed $(SEED))

test-gpu-paths: .venv/.triton
	$(BIN)/pytest --no-skips -n 0 tests/gpu_paths

test-torch: .venv-torch-$(TORCH)/.test
	.venv-torch-$(TORCH)/bin/pytest -n 2 --dist loadgroup tests/trainer \
		$(shell grep -lw torch tests/integration/test_*.py)

gpu-report: .venv/.test
	$(BIN)/python performance/gpu_report.py

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# An environment keeps the Python that it was made with, which an upgrade of the system may remove.
.PHONY: same-python
same-python:
	@test ! -d $(BIN) || $(BIN)/python -c '' 2> /dev/null || \
		{ echo "error: the Python of .venv is gone: rm -r .venv, and run make again" >&2; exit 2; }
ifneq ($(origin PYTHON),file)
	@test ! -d $(BIN) || test "$$($(BIN)/python -V)" = "$$($(PYTHON) -V)" || \
		{ echo "error: .venv has $$($(BIN)/python -V), not $$($(PYTHON) -V): rm -r .venv, and run make again" >&2; exit 2; }
endif

.venv/.runtime: .lock/install .lock/runtime.txt .lock/torch.txt .lock/activate pyproject.toml | same-python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	.lock/install .lock/runtime.txt .lock/torch.txt
	@grep -q GROUNDWORK .venv/bin/activate || cat .lock/activate >> .venv/bin/activate
	@touch $@

.venv/.test: .venv/.runtime .lock/test.txt
	.lock/install .lock/test.txt
	@touch $@

.venv/.peers: .venv/.test .lock/peers.txt
	.lock/install .lock/peers.txt
	@touch $@

# Beside .venv. A build for CUDA runs on a CPU, too: 3 GB to download, 6 on disk.
.venv-torch-%/.test: .lock/install .lock/runtime.txt .lock/test.txt pyproject.toml
	@test -x $(@D)/bin/pip || $(PYTHON) -m venv $(@D)
	@echo torch==$* > $(@D)/torch.txt
	VENV=$(@D) .lock/install .lock/runtime.txt $(@D)/torch.txt .lock/test.txt
	@touch $@

# For the code of a GPU that is not there: 190 MB to download, 700 on disk. A PyTorch for CUDA brings it along.
.venv/.triton: .venv/.peers .lock/triton.txt
	@$(BIN)/python -c 'import triton' 2> /dev/null || .lock/install .lock/triton.txt
	@touch $@

# Exact versions with their hashes, for any platform. A version that is locked stays as long as it fits.
# Some peers cap versions below those that are tested: an override takes no notice.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
WITHOUT_TORCH := sed -i '/^\(torch\|triton\|nvidia-[a-z0-9-]*\|cuda-[a-z]*\)==/,/[^\\]$$/d'

lock:
	$(COMPILE) -c .lock/torch.txt pyproject.toml -o .lock/runtime.txt
	$(COMPILE) -c .lock/torch.txt -c .lock/runtime.txt --extra test --extra torchao --extra web pyproject.toml -o .lock/test.txt
	$(COMPILE) --override .lock/torch.txt --override .lock/test.txt --override .lock/unlocked.txt --all-extras pyproject.toml -o .lock/peers.txt
	$(WITHOUT_TORCH) .lock/runtime.txt .lock/test.txt .lock/peers.txt
	echo uv | $(COMPILE) - -o .lock/uv.txt
	echo coverage | $(COMPILE) - -o .lock/coverage.txt
