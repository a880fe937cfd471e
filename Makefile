# Tailspan's targets. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_QUIET ?= --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install run test test-real lint bench vllm generate

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP) ## A .venv with everything to run and test

$(STAMP): pyproject.toml instrumentation/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tailspan needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make install PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install $(PIP_QUIET) -c constraints.txt -e ./instrumentation -e '.[test]'
	@touch $(STAMP)

run: $(STAMP) ## Start Tailspan: make run (a simulated fleet), make run VLLM=http://host:8000
	@$(BIN)/tailspan up $(if $(VLLM),--vllm $(VLLM),--simulate)

test: $(STAMP) ## All that pip alone can test, in minutes
	@$(BIN)/python -m pytest -m "not real" $(ARGS)

test-real: $(STAMP) ## The tests against real servers: vLLM, Prometheus, Chromium
	@bash rig/debian.sh
	@$(BIN)/python -m pytest -m real $(ARGS)

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy .

bench: $(STAMP) ## Print the benchmarks' figures
	@for b in benchmarks/[a-z]*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

vllm: $(STAMP) ## A real vLLM on this machine's CPU, instrumented, on port 8000
	@$(BIN)/python -m rig.serve

generate: $(STAMP) ## What is generated and committed: the Prometheus rules
	@$(BIN)/tailspan slo rules alerts/objectives --output alerts/rules/tailspan.yaml
	@$(BIN)/tailspan slo rules alerts/vllm --for vllm --output alerts/rules/vllm.yaml
