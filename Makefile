# `make demo` and `make test` do all the set-up there is, in either order.
SHELL := /bin/bash
VENV  := .venv/bin

.DEFAULT_GOAL := help
.PHONY: demo test test-rest smoke-live httpfs spark fuzz setup tools dev wheel lint types imports docs fmt lock check clean help

# two more than there are cores: the tests of whole processes, of faults and of kills mostly wait
WORKERS ?= $(shell echo $$(( $$(nproc 2> /dev/null || echo 2) + 2 )))

# the first gear of the tests; the second is all that it leaves out, so that each test runs once
FIRST := smoke or not (process or browser or bomb or matrix)
# compiled test modules are kept, also where images say that nothing is: each worker would compile all of them anew
TESTS := PYTHONDONTWRITEBYTECODE= $(VENV)/python -m pytest --hypothesis-profile=ci -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
SPARK_IF_IT_CAN_BE := .ci/spark || echo 'Spark could not be installed: its tests will be skipped' >&2

# seconds that each of the fuzz tests may take
FUZZ_SECONDS ?= 6

help:            ## what can be made
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | column -t -s: -l2

setup:           ## .venv with what a run needs of the locked set, nothing else
	@.ci/setup
	@$(VENV)/cc-pipeline ui --init > /dev/null

tools:           ## .venv with all of the locked set: what tests, linters and benchmarks need too
	@.ci/setup dev
	@$(VENV)/cc-pipeline ui --init > /dev/null

demo: setup      ## a mini crawl, the whole graph through Dagster, and what it found
	@$(VENV)/cc-pipeline demo

test: tools      ## the first gear of the tests: all rooms, and one path of each kind of process
	@$(SPARK_IF_IT_CAN_BE)
	$(TESTS) -m '$(FIRST)'

test-rest: tools ## the second gear: processes, kills, hostile input and matrices, as far as the first left them
	@$(SPARK_IF_IT_CAN_BE)
	$(TESTS) -m 'not ($(FIRST))'

httpfs: tools    ## a DuckDB that reads S3, for the tests of views over a lake on S3
	@$(VENV)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --upgrade --target .venv/httpfs -r .ci/httpfs.txt

spark: tools     ## Spark in .venv/spark, for the tests of the engine on a cluster (half a gigabyte; nothing without Java)
	@.ci/spark

fuzz: tools      ## mutated and swollen pages, feeds, archives, B-trees, footers and index pages, a minute (FUZZ_SECONDS=300 for longer)
	CC_PIPELINE_FUZZ_SECONDS=$(FUZZ_SECONDS) $(VENV)/python -m pytest -n auto cc_pipeline_tests/*/test_fuzz*.py

dev: setup       ## the Dagster UI (webserver and daemon) on the home: data, or CC_PIPELINE_HOME=data/demo
	@$(VENV)/cc-pipeline ui

# what an earlier build left would go into the wheel too, modules that are gone among it
wheel: tools     ## dist/cc_pipeline-*.whl, with the compiled parts where there is a compiler, and what it needs
	@rm -rf build dist cc_pipeline.egg-info/SOURCES.txt
	@$(VENV)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build
	@$(VENV)/python .ci/requirements > dist/requirements.txt
	@ls dist/*.whl

docs: tools      ## the columns and settings in docs/, from what declares them
	$(VENV)/python -m cc_pipeline_tests.tables_page
	$(VENV)/python -m cc_pipeline_tests.settings_page
	$(VENV)/python -m cc_pipeline_tests.commands_page

fmt: tools       ## format and sort imports
	$(VENV)/ruff format . && $(VENV)/ruff check --fix .

lint: tools      ## format check, lint
	$(VENV)/ruff format --check . && $(VENV)/ruff check .

types: tools     ## mypy, strict
	$(VENV)/mypy

imports: tools   ## the import contract
	$(VENV)/lint-imports

check: lint types imports test test-rest ## all that CI runs, but for fuzzing

lock:            ## solve the dependencies again
	.ci/lock

# settings of a home count (CC_PIPELINE_CONTACT names you in each request); SOURCE= names another source
smoke-live: setup ## a look at the real source, before a release: some ten requests, one a second
	@$(VENV)/cc-pipeline doctor --live $(if $(SOURCE),--source '$(SOURCE)')

# SHORT=1: every path on tiny input, in seconds; FULL=1: the long form, where there is one
bench-%: tools   ## ours and the rival in one run: documents, growth, index, main, operate, records, refused
	$(VENV)/python -m benchmarks.bench_$*

# nothing else in data: what was fetched from the real source is nowhere else
clean:           ## forget the demo (data/demo)
	rm -rf data/demo
