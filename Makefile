# `make` alone prints the targets. Nothing but make and a Python (3.11 or later) with pip needs to be there;
# everything else is installed into .venv, in the versions of constraints*.txt, each checked by its hash.

# A Python to build .venv with; without it, the first one found that is new enough.
PYTHON ?=
QUESTION ?= What is this project, how is it tested, and which limits does it set?

BIN := .venv/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Hashes cannot be checked for a folder, so the package itself comes last and brings nothing along.
INSTALL_PACKAGE := $(INSTALL) --no-deps --no-build-isolation --editable .

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint types docs chaos cancel-sweep tree-sweep beside bench bench-trees constraints clean

help: ## print this list
	@grep -E '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{ printf "make %-12s %s\n", $$1, $$2 }'

run: .venv/.installed ## ask an agent about this project's own files (QUESTION="…" asks something else)
	$(BIN)/geartrain run "$(QUESTION)" --root .

test: .venv/.installed-dev ## run the whole test suite (ARGS="…" goes to pytest)
	$(BIN)/python -m pytest $(ARGS)

lint: .venv/.installed-dev ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed-dev ## check types
	$(BIN)/mypy

docs: .venv/.installed ## write the generated pages of docs/ again
	$(BIN)/python docs/generate.py

chaos: .venv/.installed-dev ## kill at every fault point, break every file operation, about half an hour (ARGS="--help")
	$(BIN)/python tests/chaos/long.py $(ARGS)

cancel-sweep: .venv/.installed-dev ## cancel runs at a thousand instants of whatever a tool does, some minutes (ARGS="--help")
	$(BIN)/python tests/chaos/cancel_sweep.py $(ARGS)

tree-sweep: .venv/.installed-dev ## play 10,000 random trees of runs and look at each, about an hour (ARGS="--trees 500")
	$(BIN)/python tests/chaos/tree_sweep.py $(ARGS)

beside: .venv/.installed-dev ## what one run that misbehaves costs 99 others, in each way (ARGS="--help")
	$(BIN)/python benchmarks/beside.py $(ARGS)

bench: .venv/.installed-dev ## agent loops per second, beside a hand-written minimum in the same run
	$(BIN)/python benchmarks/loops.py $(ARGS)

bench-trees: .venv/.installed-dev ## what a thousand sub-agents cost, beside as many plain runs in the same program
	$(BIN)/python benchmarks/sub_agents.py $(ARGS)

constraints: ## resolve the pinned versions again; look at the difference before you commit it
	rm -rf build/resolver && $(MAKE) --no-print-directory .venv/bin/python && $(BIN)/python -m venv build/resolver
	build/resolver/bin/python -m pip --disable-pip-version-check install --quiet uv
	printf 'hatchling\neditables\n' > build/resolver/build.in
	build/resolver/bin/uv pip compile --quiet --upgrade $(COMPILE) --extra dev --output-file constraints-dev.txt
	build/resolver/bin/uv pip compile --quiet --upgrade $(COMPILE) --constraints constraints-dev.txt --output-file constraints.txt

COMPILE := --universal --python-version 3.11 --generate-hashes --no-annotate --no-header pyproject.toml build/resolver/build.in

clean: ## remove .venv and whatever else make and its tools have left
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "making .venv with $$("$$python" --version)"; exec "$$python" -m venv .venv; \
		fi; \
		found="$$found $$python ($$("$$python" --version 2>/dev/null || echo 'does not run'))"; \
	done; \
	echo "geartrain needs Python 3.11 or later; tried:$$found; say PYTHON=/path/to/python" >&2; exit 1

# Stamps: as long as nothing that they were made from is newer, nothing is installed again.
.venv/.installed: constraints.txt pyproject.toml | .venv/bin/python
	$(INSTALL) --require-hashes --requirement constraints.txt
	$(INSTALL_PACKAGE)
	@touch $@

.venv/.installed-dev: constraints-dev.txt pyproject.toml | .venv/bin/python
	$(INSTALL) --require-hashes --requirement constraints-dev.txt
	$(INSTALL_PACKAGE)
	@touch $@ .venv/.installed
