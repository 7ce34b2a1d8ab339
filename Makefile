# tilewatch: everything a person types. `make help` lists it.
# Each target does all of its own set-up in .venv; PIP_ARGS is passed on to pip, ARGS to pytest, PRESET to run.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python3.14; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PRESET ?= quick
export PYTHONDONTWRITEBYTECODE =

.PHONY: help run test test-slow lint types soak bench npu-venv lock clean
.DEFAULT_GOAL := help

help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

run: $(VENV)/.run ## measure experiments A–D on this machine, archive, validate, report (PRESET=smoke|quick|full)
	$(BIN)/tilewatch run A B C D --preset $(PRESET)

test: $(VENV)/.dev ## run the tests (ARGS="-k name" is passed to pytest; ARGS="-n 0 -s" shows the tables)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-slow: $(VENV)/.dev ## the tests that take minutes each; CI runs them too
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'slow and not soak' $(ARGS)

lint: $(VENV)/.dev ## ruff over the whole tree
	$(BIN)/ruff check .

types: $(VENV)/.dev ## mypy --strict over our packages
	$(BIN)/mypy

soak: $(VENV)/.dev ## the long tests at full counts
	$(BIN)/python -m pytest -m soak -s --timeout=7200 $(ARGS)

bench: $(VENV)/.dev ## the benchmarks, each a ratio against a reference measured in the same run
	@for b in tests/benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

npu-venv: .venv-npu/.made ## an interpreter with torch_npu in .venv-npu, for the tests on the software NPU

.venv-npu/.made: $(VENV)/.venv
	$(PYTHON) -m venv .venv-npu
	.venv-npu/bin/python -m pip --disable-pip-version-check install -q $(PIP_ARGS) torch==2.13.0 torch_npu==2.13.0 numpy pyyaml
	@touch $@

lock: $(VENV)/.dev ## write requirements.lock from what is installed in .venv
	$(PIP) freeze --exclude-editable --exclude torch_npu | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' > requirements.lock

clean: ## remove .venv and caches; measured data is kept
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

$(VENV)/.venv:
	@test -n "$(PYTHON)" || { echo "tilewatch needs Python 3.11 or newer on the PATH; none was found."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "tilewatch needs Python's venv module; \
	$(PYTHON) has none (on Debian: apt install python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.venv pyproject.toml requirements.lock
	$(PIP) install -q $(PIP_ARGS) -c requirements.lock -e '.[cpu]'
	@touch $@

$(VENV)/.dev: $(VENV)/.venv pyproject.toml requirements.lock
	$(PIP) install -q $(PIP_ARGS) -c requirements.lock -e '.[cpu,dev]'
	@touch $@ $(VENV)/.run
