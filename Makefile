# make run       VinePPO on the embedded task: about four minutes on two CPU cores
# make test      the tests, without the slow ones        make test-all   all of them
# make check     format, lint, types                     make clean      remove environment and caches
# make docs      reference of the library from its docstrings, in build/docs
# make fuzz      texts, formulas, data files and configurations at random, EXAMPLES=10000 of each test
#
# PYTHON=python3.12 make run     another interpreter (3.11 to 3.13)
# make run ARGS="--config.seed=1"     other flags of experiments.run
# make test PYTEST_ARGS="-n 1 -k sampler"

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
PYTEST_ARGS ?= -n 2 --dist loadfile

# Compiled programs outlive the process: a second run or test session starts much faster.
export JAX_COMPILATION_CACHE_DIR ?= $(HOME)/.cache/vinejax/xla
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.1

# A stamp is named after the contents of the files that it stands for, so that nothing is installed twice.
RUN_STAMP := $(VENV)/.run-$(shell cat requirements.txt | cksum | cut -d ' ' -f 1)
DEV_STAMP := $(VENV)/.dev-$(shell cat requirements.txt requirements-dev.txt | cksum | cut -d ' ' -f 1)
BIN := $(VENV)/bin

# The six modules of the public surface, and what tasks, methods and scripts of one's own use beside them.
DOCUMENTED := vinejax vinejax.tasks.base vinejax.tasks.rows vinejax.tokenizer vinejax.config vinejax.grading \
  vinejax.train vinejax.train.algorithms.base vinejax.analysis vinejax.statistics

# Tests that draw their examples.
FUZZED := tests/test_hostile_text.py tests/tasks/test_any_formula.py tests/tasks/test_math_steps.py \
  tests/vine/test_states.py

.PHONY: run test test-all check docs fuzz clean
.DELETE_ON_ERROR:

run: $(RUN_STAMP)
	$(BIN)/python -m experiments.run --config=tiny --resume $(ARGS)

test: $(DEV_STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow"

test-all: $(DEV_STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(DEV_STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python vinejax experiments

fuzz: $(DEV_STAMP)
	EXAMPLES=$${EXAMPLES:-10000} $(BIN)/python -m pytest -q --hypothesis-profile=fuzz $(FUZZED)

docs: $(DEV_STAMP)
	$(BIN)/python -m pdoc --docformat markdown --output-directory build/docs $(DOCUMENTED)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache build *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "vinejax needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	  echo "Name another one: PYTHON=python3.12 make $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "no virtual environment could be made; Debian and Ubuntu need python3-venv." >&2; exit 1; }

$(RUN_STAMP): | $(BIN)/python
	@echo "installing the packages of requirements.txt into $(VENV): a minute or two, once"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@rm -f $(VENV)/.run-*
	@touch $@

$(DEV_STAMP): | $(RUN_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@rm -f $(VENV)/.dev-*
	@touch $@
