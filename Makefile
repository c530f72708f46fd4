# Everything happens in .venv, which `make setup` builds from requirements.lock. Only Python 3.11 to 3.13 is needed.
# SPARK=4.1 uses that release in .venv-4.1, with the same packages otherwise.
PYTHON ?= python3
SPARK ?=
VENV := .venv$(SPARK:%=-%)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# uv installs in a tenth of pip's time. It takes the index that pip is set to, and the machine's certificates.
UV := UV_HTTP_TIMEOUT=180 UV_DEFAULT_INDEX="$${PIP_INDEX_URL:-$$($(PIP) config get global.index-url 2>/dev/null)}" \
	$(BIN)/uv pip install --quiet --native-tls --no-deps --python $(BIN)/python
PACKAGES := $(VENV)/.packages
INSTALLED := $(VENV)/.installed
FETCHED := $(VENV)/.fetched
FETCHED_FOR_DEMO := $(VENV)/.fetched-for-demo
COMPILED := $(VENV)/.compiled
ARCHIVED := $(VENV)/.archived
RELEASE := $(SPARK:%=requirements-spark-%.lock)
# Those beside the release of requirements.lock.
RELEASES := $(patsubst requirements-spark-%.lock,%,$(sort $(wildcard requirements-spark-*.lock)))
SPARKS := 4.0 $(RELEASES)

# Hundreds of processes import the same modules, and each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test short-tests test-all test-fast test-real matrix matrix-part proof soak bench docs lint format dist clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' Makefile

# What waits for the network, the compiler and the disk goes on side by side.
setup: ## build .venv, download the jars (PYTHON=python3.12 and SPARK=4.1 choose others)
	@$(MAKE) --no-print-directory -j3 $(INSTALLED) $(FETCHED) $(COMPILED) $(ARCHIVED)

$(PACKAGES): requirements.lock $(RELEASE) pyproject.toml src/headrace_emulators/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headrace needs Python 3.11 or newer, this is %d.%d. Try make setup PYTHON=python3.11." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	awk -F '==' 'NR != FNR && !($$1 in own) {print} NR == FNR {own[$$1]; print}' $(or $(RELEASE),/dev/null) requirements.lock > $(VENV)/requirements.txt
	grep -v '^pyspark==' $(VENV)/requirements.txt > $(VENV)/packages.txt
	$(PIP) install --quiet --disable-pip-version-check --no-deps $$(grep '^uv==' requirements.lock)
	$(UV) -r $(VENV)/packages.txt
	$(UV) -e . -e src/headrace_emulators
	@touch $@

# PySpark is published as its source only. Its wheel is unpacked at once, and need not be compressed before.
$(INSTALLED): $(PACKAGES)
	$(UV) --config-settings=--build-option=--compression=stored $$(grep '^pyspark==' $(VENV)/requirements.txt)
	@touch $@

# A file of its own, so that an unreachable Maven repository does not install everything again.
$(FETCHED): $(INSTALLED) src/headrace/spark/jars.py
	$(BIN)/python -m headrace.spark.jars
	@touch $@

$(FETCHED_FOR_DEMO): $(INSTALLED) src/headrace/spark/jars.py
	$(BIN)/python -m headrace.spark.jars demo
	@touch $@

# Once for each version of the engine; without it the first message waits for the compiler.
$(COMPILED): $(PACKAGES) $(wildcard src/headrace/wire/*.py)
	$(BIN)/python -m headrace.formats.kernels
	@touch $@

# Once for each Java and PySpark; without it each start of Spark takes a few seconds more.
$(ARCHIVED): $(FETCHED) src/headrace/spark/archive_classes.py
	$(BIN)/python -m headrace.spark.archive_classes
	@touch $@

demo: ## capture changes of a database with history into Kafka messages and tables (ARGS=...)
	@$(MAKE) --no-print-directory -j3 $(INSTALLED) $(FETCHED_FOR_DEMO) $(COMPILED)
	@$(BIN)/headrace demo $(ARGS)

# Types take twenty seconds of one core.
test: setup ## everything that must pass before a commit: style, types, tests with a JVM and without, side by side
	@$(BIN)/python -m tests.parts --age
	@$(MAKE) --no-print-directory -j2 lint short-tests

short-tests: setup
	$(BIN)/python -m tests.side_by_side "not system and not soak and not live and not real" $(ARGS)

test-all: lint ## everything that runs here, in parts; goes on where it stopped; writes docs/tested.md (ARGS="systems real" chooses)
	$(BIN)/python -m tests.parts $(ARGS)

test-fast: setup ## for every edit: what starts no JVM and no server of a database, and is not slow
	$(BIN)/pytest -n 2 --dist loadfile -m "not jvm and not slow and not system and not soak and not live and not real" $(ARGS)

test-real: setup ## Debezium Server on a real MariaDB and PostgreSQL (docs/real-producers.md); MariaDB as a target
	$(BIN)/pytest -m "real and not soak" $(ARGS)

matrix: setup ## what starts Spark, on each release of it; writes docs/releases.md (SPARKS=4.3 chooses)
	rm -rf build/releases
	for spark in $(SPARKS); do $(MAKE) matrix-part SPARK=$${spark#4.0} || exit 1; done
	$(BIN)/python docs/generate_releases.py

# What fails is on the page.
matrix-part: setup
	-$(BIN)/python docs/generate_releases.py run -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

proof: setup ## live tests on real servers, in containers where Docker is; writes docs/proof.md
	$(BIN)/python -m tests.live.proof $(ARGS)

soak: setup ## long runs with faults
	$(BIN)/pytest -m soak $(ARGS)

bench: setup ## measure, and write the numbers down
	$(BIN)/python -m bench $(ARGS)

docs: $(INSTALLED) ## build the site in build/site from docs; dead links and what it would load from elsewhere fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

lint: setup ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.glossary

format: setup ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: setup ## build wheels and source distributions into dist/, with licences, bill of materials and checksums
	$(BIN)/python -m release

clean: ## remove .venv, others for SPARK=... and what tools left behind; keeps downloaded jars
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
