# Needs Python 3.11 or newer and make; everything else is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TESTS ?= tests

.PHONY: help demo test lint bench bench-hbase bench-stores bench-spark stress stress-hbase stress-stores stress-spark stress-tests hbase hbase-stop clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    index a small corpus and show the near-duplicates in it'
	@echo 'make test    run the tests'
	@echo 'make lint    check format, lint and types'
	@echo 'make bench   measure speed and quality (LARGE=1 for 10 million documents; some need HSIMHASH_DATA)'
	@echo 'make bench-hbase   measure on an HBase of its own, against happybase (Java 17, Maven; LARGE=1 for a million documents)'
	@echo 'make bench-spark   measure the jobs on Spark, against a plain self-join (Java 17; LARGE=1 for 10 million documents)'
	@echo 'make bench-stores  measure on servers of other stores, which it starts (PostgreSQL, Redis), against plain clients'
	@echo 'make stress  kill, fuzz and compare at scale; make stress-hbase does so on an HBase of its own (Java 17, Maven), make stress-spark on Spark'
	@echo 'make stress-stores  kill and compare on a PostgreSQL and a Redis of its own'
	@echo 'make stress-tests  run all tests ten times beside a load of 6, first as on a bare machine: hours'
	@echo 'make hbase   start an HBase on this machine (Java 17, Maven); make hbase-stop ends it, its data stay in .hbase'
	@echo 'make clean   remove what the above made'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("hsimhash needs Python 3.11 or newer, not " + sys.version.split()[0] + "; say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of dependencies, so that each target installs only what it needs.
$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.%: pyproject.toml | $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

# A peer of the benchmarks, in a folder of its own: two packages of PyPI are imported as simhash.
$(VENV)/.pybind: | $(VENV)/.base
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/pybind 'simhash-pybind>=0.0.3'
	@touch $@

demo: $(VENV)/.base
	@$(BIN)/hsimhash demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS)

lint: $(VENV)/.lint $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.bench $(VENV)/.pybind
	$(BIN)/python -m tests.bench.bench_fingerprint
	$(BIN)/python -m tests.bench.bench_recipes
	$(BIN)/python -m tests.bench.bench_quality
	$(BIN)/python -m tests.bench.bench_signatures
	$(BIN)/python -m tests.bench.bench_index $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_load $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_serve
	$(BIN)/python -m tests.bench.bench_pairs $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_find_all $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_dedup $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_compressed $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_extract

bench-hbase: $(VENV)/.test
	$(BIN)/python -m tests.bench.bench_hbase $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_bulk_load
	$(BIN)/python -m tests.bench.bench_collect $(if $(LARGE),--large)

bench-stores: $(VENV)/.test
	$(BIN)/python -m tests.bench.bench_postgresql
	$(BIN)/python -m tests.bench.bench_redis

bench-spark: $(VENV)/.test
	$(BIN)/python -m tests.bench.bench_spark $(if $(LARGE),--large)

stress: $(VENV)/.test
	$(BIN)/python -m tests.stress.exactness
	$(BIN)/python -m tests.stress.kills
	$(BIN)/python -m tests.stress.fuzz_records
	FORMAT_VALUES=1000000 $(BIN)/python -m pytest -q tests/test_fingerprint_bits.py -k large
	$(BIN)/python -m tests.stress.damage
	$(BIN)/python -m tests.stress.hfile_damage
	$(BIN)/python -m tests.stress.crowd
	$(BIN)/python -m tests.stress.claims
	$(BIN)/python -m tests.stress.serve_fuzz

stress-hbase: $(VENV)/.test
	$(BIN)/python -m tests.stress.protocol
	$(BIN)/python -m tests.stress.claims_protocol
	$(BIN)/python -m tests.stress.claims --hbase 1
	$(BIN)/python -m tests.stress.hbase_exactness
	$(BIN)/python -m tests.stress.hbase_live
	$(BIN)/python -m tests.stress.hbase_faults
	$(BIN)/python -m tests.stress.hbase_kills
	$(BIN)/python -m tests.stress.hbase_bulk_load
	$(BIN)/python -m tests.stress.hbase_check
	$(BIN)/python -m tests.stress.hbase_crawlers
	$(BIN)/python -m tests.stress.scrapy_outage
	$(BIN)/python -m tests.stress.hbase_failover

stress-stores: $(VENV)/.test
	$(BIN)/python -m tests.stress.stores_exactness --store postgresql
	$(BIN)/python -m tests.stress.stores_exactness --store redis
	$(BIN)/python -m tests.stress.stores_kills --store postgresql
	$(BIN)/python -m tests.stress.stores_kills --store redis

stress-spark: $(VENV)/.test
	$(BIN)/python -m tests.stress.spark_exactness

stress-tests: $(VENV)/.test
	$(BIN)/python -m tests.stress.under_load --tests '$(TESTS)'

hbase:
	@docker/hbase/entrypoint jars
	@docker/hbase/entrypoint start
	@echo 'make hbase-stop ends it'

hbase-stop:
	@docker/hbase/entrypoint stop

clean: hbase-stop
	rm -rf .hbase $(VENV) .venv-3.* .demo .bench build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
