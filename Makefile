# Needs Python 3.11 or newer and make; everything else is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help demo native docs dist test test-servers servers named-tests lint bench bench-hbase bench-stores bench-spark stress stress-hbase stress-stores stress-spark stress-tests hbase hbase-jars hbase-stop clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    index a small corpus and show the near-duplicates in it'
	@echo 'make test    run the tests that do not need a server; takes a few minutes'
	@echo 'make test-servers   run the tests on HBase, Spark, PostgreSQL and Redis; downloads what they need, and skips the tests that cannot run'
	@echo 'make native  build and install hsimhash-native, which signs texts three to four times as fast (needs Rust: cargo)'
	@echo 'make lint    check format, lint and types'
	@echo 'make docs    build the documentation as pages in docs/site, and check its links'
	@echo 'make dist    build the files of a release in dist: sdist, wheel, manual page, completions'
	@echo 'make bench   measure speed and quality (LARGE=1 for 10 million documents; some benchmarks need HSIMHASH_DATA)'
	@echo 'make bench-hbase   compare with happybase on an HBase that it starts (Java 17, Maven; LARGE=1 for a million documents)'
	@echo 'make bench-spark   compare the Spark jobs with a plain self-join (Java 17; LARGE=1 for 10 million documents)'
	@echo 'make bench-stores  compare with plain clients on PostgreSQL and Redis servers that it starts'
	@echo 'make stress  kill, fuzz and compare with brute force at scale; make stress-hbase runs on an HBase that it starts (Java 17, Maven), make stress-spark on Spark'
	@echo 'make stress-stores  kill and compare on PostgreSQL and Redis servers that it starts; crawl with every kind of Scrapy item'
	@echo 'make stress-tests  run all tests ten times while six processes keep the machine busy; takes hours'
	@echo 'make hbase   start HBase on this machine (Java 17, Maven); make hbase-stop stops it; its data stays in .hbase'
	@echo 'make clean   remove everything that the other targets made'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("hsimhash needs Python 3.11 or newer, not " + sys.version.split()[0] + "; run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# Each target installs only the packages that it needs; an empty file in $(VENV) records each set. Most of their modules
# are never imported, so a module is compiled only when it is first imported.
# The pip that comes with Python 3.11 warns about an extra of lxml that later versions of pip find.
$(VENV)/.pip: | $(VENV)/bin/python
	$(BIN)/python -m pip install --upgrade 'pip>=23.3'
	@touch $@

$(VENV)/.base: pyproject.toml | $(VENV)/.pip
	@echo 'Installing hsimhash and its packages into $(VENV):'
	$(BIN)/python -m pip install --no-compile --editable .
	@touch $@

$(VENV)/.%: pyproject.toml | $(VENV)/.pip
	@echo "Installing the packages of the extra '$*' into $(VENV):"
	$(BIN)/python -m pip install --no-compile --editable '.[$*]'
	@touch $@

# The wheels that a test packs, without a network, into an environment for Spark's executors. The test builds hsimhash.
$(VENV)/.wheels: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip wheel --wheel-dir $(VENV)/wheels '.[parquet]' 'pandas<3' venv-pack 'setuptools>=77'
	rm $(VENV)/wheels/hsimhash-*.whl
	@touch $@

# A peer for the benchmarks. It has its own folder because two packages on PyPI are imported as simhash.
$(VENV)/.pybind: | $(VENV)/.base
	$(BIN)/python -m pip install --no-deps --upgrade --target $(VENV)/pybind 'simhash-pybind>=0.0.3'
	@touch $@

# Other peers, which need their own versions of packages. text-dedup depends on 1 GB of packages that its MinHash does
# not use.
$(VENV)/.datatrove: | $(VENV)/.base
	$(BIN)/python -m venv $(VENV)/datatrove
	$(VENV)/datatrove/bin/python -m pip install 'datatrove[io,processing]>=0.10' orjson pyarrow spacy \
	    jieba pythainlp sudachipy sudachidict_core scipy bitarray click-option-group
	$(VENV)/datatrove/bin/python -m pip install --no-deps 'text-dedup==0.4.0'
	@touch $@

# Every target works without hsimhash-native: numpy makes the same signatures.
native: $(VENV)/.native

$(VENV)/.native: native/Cargo.toml native/pyproject.toml $(wildcard native/src/*.rs) | $(VENV)/.base
	@command -v cargo >/dev/null || { echo 'make native needs cargo; see https://rustup.rs' >&2; exit 2; }
	$(BIN)/python -m pip install --no-deps --force-reinstall ./native
	@touch $@

demo: $(VENV)/.base
	@$(BIN)/hsimhash demo

# Fail immediately if TESTS names a file that does not exist. pytest would report it only after starting its workers.
named-tests:
	@for word in $(TESTS); do \
	    case $$word in \
	    -*) ;; \
	    *.py* | */*) [ -e "$${word%%::*}" ] || { echo "no such test file: $$word" >&2; exit 2; } ;; \
	    esac; \
	done

# Tests start hundreds of processes. Without bytecode files, each of them would compile all modules again.
test test-servers: export PYTHONDONTWRITEBYTECODE :=

# Everything that needs a server or Java is in tests/integration.
test: named-tests $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal $(or $(TESTS),tests --ignore=tests/integration)

test-servers: named-tests $(VENV)/.test servers
	$(BIN)/python -m pytest -n auto --dist worksteal $(or $(TESTS),tests/integration)

# MAKE_COMMAND instead of MAKE, because make runs lines that contain $(MAKE) even with --dry-run.
servers: $(VENV)/.base
	@tests/integration/prepare '$(MAKE_COMMAND)' '$(VENV)'

lint: $(VENV)/.lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Does not need a network once its packages are installed. A broken link is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --clean --config-file docs/mkdocs.yml
	@echo 'open docs/site/index.html'

# Builds the files of a release: sdist, wheel, manual page, completions.
dist: $(VENV)/.dist
	rm -rf dist
	mkdir -p dist/source
	cp -R hsimhash pyproject.toml LICENSE dist/source
	$(BIN)/python -m docs.package_page >dist/source/README.md
	$(BIN)/python -m build --quiet --outdir dist dist/source
	rm -r dist/source
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m docs.man_page >dist/hsimhash.1
	mkdir dist/completions
	awk '/^## /{n++} n==1' CHANGELOG.md >dist/notes.md
	for shell in bash zsh fish; do $(BIN)/hsimhash completion $$shell >dist/completions/hsimhash.$$shell || exit; done

bench: $(VENV)/.bench $(VENV)/.pybind $(VENV)/.datatrove
	$(BIN)/python -m tests.bench.bench_fingerprint
	$(BIN)/python -m tests.bench.bench_native
	$(BIN)/python -m tests.bench.bench_recipes
	$(BIN)/python -m tests.bench.bench_quality
	$(BIN)/python -m tests.bench.bench_signatures
	$(BIN)/python -m tests.bench.bench_index $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_load $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_serve
	$(BIN)/python -m tests.bench.bench_pairs $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_find_all $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_crowds $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_dedup $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_tables $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_extract

bench-hbase: $(VENV)/.test $(VENV)/.postgresql $(VENV)/.redis hbase-jars
	$(BIN)/python -m tests.bench.bench_hbase $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_bulk_load
	$(BIN)/python -m tests.bench.bench_plan --store hbase --documents 100000
	$(BIN)/python -m tests.bench.bench_collect $(if $(LARGE),--large)

bench-stores: $(VENV)/.test $(VENV)/.postgresql $(VENV)/.redis
	$(BIN)/python -m tests.bench.bench_postgresql
	$(BIN)/python -m tests.bench.bench_redis
	$(BIN)/python -m tests.bench.bench_plan
	$(BIN)/python -m tests.bench.bench_plan --store postgresql
	$(BIN)/python -m tests.bench.bench_plan --store redis

bench-spark: $(VENV)/.test $(VENV)/.spark $(VENV)/.datatrove
	$(BIN)/python -m tests.bench.bench_spark $(if $(LARGE),--large)
	$(BIN)/python -m tests.bench.bench_spark_peers $(if $(LARGE),--large)

stress: $(VENV)/.test
	$(BIN)/python -m tests.stress.exactness
	$(BIN)/python -m tests.stress.calls_exactness
	$(BIN)/python -m tests.stress.kills
	$(BIN)/python -m tests.stress.fuzz_records
	$(BIN)/python -m tests.stress.fuzz_inputs
	$(BIN)/python -m tests.stress.hostile_shapes
	$(if $(FOREIGN),$(BIN)/python -m tests.stress.foreign_files $(FOREIGN))
	FORMAT_VALUES=1000000 $(BIN)/python -m pytest -q tests/test_fingerprint_bits.py -k large
	$(BIN)/python -m tests.stress.damage
	$(BIN)/python -m tests.stress.hfile_damage
	$(BIN)/python -m tests.stress.crowd
	$(BIN)/python -m tests.stress.claims
	$(BIN)/python -m tests.stress.serve_fuzz
	$(if $(wildcard $(VENV)/.native),$(BIN)/python -m tests.stress.native_identity)

stress-hbase: $(VENV)/.test $(VENV)/.spark $(VENV)/.postgresql $(VENV)/.redis hbase-jars
	$(BIN)/python -m tests.stress.protocol
	$(BIN)/python -m tests.stress.claims_protocol
	$(BIN)/python -m tests.stress.claims --store hbase
	$(BIN)/python -m tests.stress.hbase_exactness
	$(BIN)/python -m tests.stress.calls_exactness --store hbase
	$(BIN)/python -m tests.stress.stores_identity --store hbase
	$(BIN)/python -m tests.stress.hbase_live
	$(BIN)/python -m tests.stress.hbase_faults
	$(BIN)/python -m tests.stress.hbase_kills
	$(BIN)/python -m tests.stress.hbase_bulk_load
	$(BIN)/python -m tests.stress.spark_load $(if $(LARGE),--documents 10000000)
	$(BIN)/python -m tests.stress.hbase_check
	$(BIN)/python -m tests.stress.hbase_crawlers
	$(BIN)/python -m tests.stress.scrapy_outage
	$(BIN)/python -m tests.stress.hbase_failover
	$(BIN)/python -m tests.stress.hbase_disturbed

stress-stores: $(VENV)/.test $(VENV)/.postgresql $(VENV)/.redis
	$(BIN)/python -m tests.stress.stores_exactness --store postgresql
	$(BIN)/python -m tests.stress.stores_exactness --store redis
	$(BIN)/python -m tests.stress.calls_exactness --store postgresql
	$(BIN)/python -m tests.stress.calls_exactness --store redis
	$(BIN)/python -m tests.stress.stores_kills --store postgresql
	$(BIN)/python -m tests.stress.stores_kills --store redis
	$(BIN)/python -m tests.stress.claims --store postgresql
	$(BIN)/python -m tests.stress.claims --store redis
	$(BIN)/python -m tests.stress.serve_soak --store lmdb
	$(BIN)/python -m tests.stress.serve_soak --store postgresql
	$(BIN)/python -m tests.stress.stores_identity --store lmdb
	$(BIN)/python -m tests.stress.stores_identity --store postgresql
	$(BIN)/python -m tests.stress.stores_identity --store redis
	$(BIN)/python -m tests.stress.scrapy_items

stress-spark: $(VENV)/.test $(VENV)/.spark
	$(BIN)/python -m tests.stress.spark_exactness
	$(BIN)/python -m tests.stress.spark_skew $(if $(LARGE),--large)
	$(BIN)/python -m tests.stress.spark_versions

stress-tests: $(VENV)/.test
	$(BIN)/python -m tests.stress.under_load --tests '$(TESTS)'

hbase-jars:
	@docker/hbase/entrypoint jars

# Without this port, doctor and status could not read the region server's metrics.
hbase: export HBASE_SETTINGS ?= hbase.regionserver.info.port=16030
hbase: hbase-jars
	@docker/hbase/entrypoint start
	@echo 'open its shell with docker/hbase/entrypoint shell'
	@echo 'stop it with make hbase-stop'

hbase-stop:
	@docker/hbase/entrypoint stop

clean: hbase-stop
	rm -rf docs/site native/target native/Cargo.lock .hbase $(VENV) .venv-3.* .venv-lowest .demo .bench build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
