# Two commands for a fresh machine: `make demo` and `make check`. Each does its own set-up.

SHELL := /bin/bash
BIN := .venv/bin
# Nothing but the environment is cached in the checkout.
export XDG_CACHE_HOME := $(or $(XDG_CACHE_HOME),$(shell echo ~)/.cache)
CACHE := $(XDG_CACHE_HOME)/reclaimerd

check: export RUFF_CACHE_DIR := $(CACHE)/ruff
check: export MYPY_CACHE_DIR := $(CACHE)/mypy
check: export COVERAGE_FILE := $(CACHE)/coverage
check: export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis

.PHONY: help demo check nightly docs environment development packages

help:
	@echo "make demo    show the whole ladder on a simulated GPU host with real processes"
	@echo "make check   format, lint, types, import floors, systemd unit, tests with their floors"
	@echo "make nightly the tests that take hours: soak, stateful machine, fuzz, mutation"
	@echo "make docs    write the pages made from the code anew, and the version into README and tutorial"

demo: environment
	@$(BIN)/reclaimctl demo

# The order is the promise: what is cheap fails first, and pytest's summary is the last line. Two files of
# tests run at once: most of them wait for real processes.
check: packages development
	@mkdir -p "$(CACHE)"
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir "$(CACHE)/import-linter"
	tools/verify-unit systemd/reclaimerd.service $(BIN)/reclaimerd
	$(BIN)/python -m pytest -m "not nightly and not gpu" -n 2 --dist loadfile \
		--cov=reclaimerd.judge --cov=reclaimerd.model \
		--cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

# What takes hours. It is run by hand, and its figures go into the docs; a seed that is printed plays again by
# RECLAIMERD_SEED. Every test marked `nightly` is in it: soak, stateful machine, fuzz, requests, crashes.
nightly: packages development
	@mkdir -p "$(CACHE)"
	$(BIN)/python -m pytest -s -m "nightly and not gpu"
	$(BIN)/python tools/mutation-check

docs: environment
	$(BIN)/python -c "from reclaimerd.judge.ladder import as_markdown; print(end=as_markdown())" > docs/ladder.md
	$(BIN)/python -c "from reclaimerd.judge.reset_steps import as_markdown; print(end=as_markdown())" > docs/reset.md
	$(BIN)/python -c "from reclaimerd.config.reference import as_markdown; print(end=as_markdown())" > docs/policy.md
	$(BIN)/python -c "from reclaimerd.cli.doctor_run import manual_page; print(end=manual_page())" > docs/doctor.md
	$(BIN)/reclaimctl manual > docs/reclaimctl.md
	version=$$($(BIN)/python -c "import reclaimerd; print(reclaimerd.__version__)") && \
		sed -i -E "s/^( *reclaim(erd|ctl)) [0-9]+\.[0-9]+\.[0-9]+\b/\1 $$version/" README.md docs/tutorial.md

environment:
	@tools/setup-environment

development:
	@tools/setup-environment dev

packages:
	@tools/setup-packages
