# Every target makes .venv first if it is missing. `make` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RANK ?= 2
FAULT ?= data_loading
STEP ?= 25

.PHONY: help setup demo test lint format bench faults chaos soak docs notebooks recordings clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "making $(VENV): the project (editable) and its development tools, CPU torch; this takes a minute or more"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(VENV)/.ready  ## make .venv with the project (editable) and all extras

demo: $(VENV)/.ready  ## a real 4-rank training run hangs, is explained and restarted (RANK=, FAULT=, STEP=)
	@$(BIN)/diag demo --rank $(RANK) --fault $(FAULT) --step $(STEP)

test: $(VENV)/.ready  ## all tests, two at a time: most of them wait for a job (ARGS= for pytest)
	@$(BIN)/python -m compileall -q diag agent watchdog
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.ready  ## ruff, mypy, pyright, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy diag agent watchdog tests benchmarks
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports

format: $(VENV)/.ready  ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench: $(VENV)/.ready  ## the rows of benchmarks/README.md, ours beside the peer
	@$(BIN)/python -m benchmarks

faults: $(VENV)/.ready  ## the fault matrix: real jobs, expected against found (ARGS= for tests.faults)
	@$(BIN)/python -m tests.faults $(ARGS)

chaos: $(VENV)/.ready  ## 100 real jobs to which something happens at a random moment (ARGS= for tests.chaos)
	@$(BIN)/python -m tests.chaos $(ARGS)

soak: $(VENV)/.ready  ## an hour: an agent and 8 ranks with captures, requests, notices all the time; nothing grows (ARGS=)
	@$(BIN)/python -m tests.soak $(ARGS)

docs: $(VENV)/.ready  ## the documentation as pages in build/docs, warnings are errors
	@$(BIN)/python -m rankscope.diag.catalogue_page > docs/reference/catalogue.md.new && mv docs/reference/catalogue.md.new docs/reference/catalogue.md
	@$(BIN)/python -m rankscope.diag.tables.page > docs/reference/dataframes.md.new && mv docs/reference/dataframes.md.new docs/reference/dataframes.md
	@$(BIN)/python -m tests.decisions_page > docs/reference/decisions.md.new && mv docs/reference/decisions.md.new docs/reference/decisions.md
	@$(BIN)/python -m rankscope.agent.failures.page docs/reference/failures.md
	@$(BIN)/python -m tests.pages
	@mkdir -p build && $(BIN)/mkdocs build --strict > build/docs.log 2>&1 || { cat build/docs.log; exit 1; }
	@echo "build/docs/index.html"

notebooks: $(VENV)/.ready  ## run the notebooks and write them with their outputs (needs a Chromium)
	@$(BIN)/python -m tests.notebooks $(ARGS)

recordings: $(VENV)/.ready  ## run the jobs anew that the notebooks are shown on; ten minutes (ARGS= for some)
	@$(BIN)/python -m tests.recordings $(ARGS)

clean:  ## remove .venv and caches
	@rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
