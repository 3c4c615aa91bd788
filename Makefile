# On a fresh Debian or Ubuntu with python3, make and git, every target does its own set-up (scripts/setup.sh).
.DEFAULT_GOAL := help
.PHONY: help quickstart test lint proof bench base local clean

RUN := .tools/uv run --no-sync --python .venv/bin/python
PYTEST := $(RUN) pytest
ARGS :=

export UV_PROJECT_ENVIRONMENT := .venv
unexport VIRTUAL_ENV
# Harbor fetches no price list and tells nobody; torch's idle threads leave the cores to the sandboxes.
export LITELLM_LOCAL_MODEL_COST_MAP := True
export HARBOR_TELEMETRY := off
export OMP_WAIT_POLICY := passive

help:
	@echo 'make quickstart   set up with torch, then show a run (20 s demo until training exists)'
	@echo 'make test         set up, lint, then the whole suite in its reduced size (ARGS="-k name")'
	@echo 'make proof        the whole suite at full size'
	@echo 'make bench        the benchmarks'
	@echo 'make lint         ruff, mypy, import contracts'
	@echo 'make clean        remove what set-up and tools made; runs stay'

quickstart: local
	@echo 'quickstart: there is no training yet; this is a demo with made-up episodes, 20 s'
	@$(RUN) harbortui demo --seconds 20

test: lint
	@$(PYTEST) $(ARGS)

proof: base
	@HARBORTUI_PROOF=1 $(PYTEST) -m '' $(ARGS)

bench: base
	@$(RUN) python -m benchmarks $(ARGS)

lint: base
	@$(RUN) ruff check
	@$(RUN) mypy
	@$(RUN) lint-imports --no-logo

base local:
	@scripts/setup.sh $@

clean:
	rm -rf .venv .tools uv.lock dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
