# Tailspan's targets. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest --durations=30
# More workers than cores, because tests also wait for processes and servers. Three workers use 92 %
# of two cores.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(8, (os.cpu_count() or 1) * 3 // 2))')
SIDE_BY_SIDE := -n $(WORKERS) --dist worksteal
# The tests of a file share servers, and a vLLM takes 2 GB. At most as many files as cores run at the
# same time: four files on two cores exceeded time limits. xdist would run the files with the fewest
# tests last, but these take longest, so tests/real/conftest.py puts them first.
# Tests that start processes and servers depend on the machine's load. A test that fails runs once
# more, and the summary lists it (RERUN). A test that fails twice has failed.
SECOND_TRY := --reruns 1 --reruns-delay 5 -rR
FILE_BY_FILE := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PIP_QUIET ?= --quiet --disable-pip-version-check

# The tests start hundreds of processes, which share compiled code.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install run test test-real lint docs bench vllm generate

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(STAMP) ## Create a .venv with everything to run and test

$(STAMP): pyproject.toml instrumentation/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tailspan needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make install PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install $(PIP_QUIET) -c constraints.txt -e ./instrumentation -e '.[all,docs,test]'
	@touch $(STAMP)

run: $(STAMP) ## Start Tailspan: a simulated fleet, or VLLM=http://host:8000; ARGS="--explorer-port 8502"
	@$(BIN)/tailspan up $(if $(VLLM),--vllm '$(VLLM)',--simulate) $(ARGS)

# Without compiled code on disk, each of many processes would compile the replay.
test: $(STAMP) ## Run all tests that need only pip, in minutes
	@$(BIN)/python -c 'from replay.loop import warm; warm()'
	@$(PYTEST) -m "not real" $(SECOND_TRY) $(SIDE_BY_SIDE) $(ARGS)

test-real: $(STAMP) ## Run the tests against real servers: vLLM, Prometheus, PostgreSQL, ClickHouse, Chromium
	@echo "What the tests use beside pip's:"
	@bash rig/debian.sh
	@for each in chdb rotel helm; do \
		$(BIN)/python -m pip install $(PIP_QUIET) -c constraints.txt -e ./instrumentation -e ".[$$each]" \
			&& echo "  $$each present" || echo "  $$each skipped by pip"; \
	done
	@status=0; \
	$(PYTEST) -m "real and alone" $(SECOND_TRY) $(or $(ARGS),tests/real) || [ $$? -eq 5 ] || status=1; \
	$(PYTEST) -m "real and not alone" $(SECOND_TRY) $(FILE_BY_FILE) $(ARGS) || [ $$? -eq 5 ] || status=1; \
	exit $$status  # 5: there was none to run

lint: $(STAMP) ## Run ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy .

docs: $(STAMP) ## Build the documentation site in build/docs
	@$(BIN)/python -m sphinx -q -W --keep-going -n -j auto -c docs -b html . build/docs
	@echo "build/docs/docs/index.html"

generate: $(STAMP) ## Write the generated files that are committed
	@$(BIN)/python -m telemetry.attributes_page docs/attributes.md
	@$(BIN)/python -m cli.settings_page docs/configuration.md
	@$(BIN)/tailspan slo rules alerts/objectives --output alerts/rules/tailspan.yaml
	@$(BIN)/tailspan slo rules alerts/vllm --for vllm --output alerts/rules/vllm.yaml
	@$(BIN)/tailspan slo rules alerts/operating --output alerts/rules/operating.yaml
	@$(BIN)/tailspan dashboards build dashboards/generated

bench: $(STAMP) ## Print the benchmarks' figures
	@for b in benchmarks/[a-z]*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

vllm: $(STAMP) ## Start a real vLLM on this machine's CPU with the plugin, on port 8000
	@$(BIN)/python -m rig.serve
