# rabbit_chx: each target builds what it needs first. `make` without a target lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO := $(VENV)/.demo
AMQP10 := $(VENV)/.amqp10
DOCS := $(VENV)/.docs
SUPPLY := .venv-supply
LOCKED := .venv-locked
BILL := dist/rabbit-chx.cdx.json
ACTIONLINT := $(VENV)/.actionlint
AMQPLIB := $(VENV)/.programs/node_modules
SPARK_CLASSES := $(VENV)/.spark-classes.jsa
# The executors of a local Spark run the Python that has our packages, and the machine's Java.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
PYTEST := $(BIN)/python -m pytest
# Without bytecode files, each process compiles our modules again, and each pytest worker all tests: a minute of CPU time.
unexport PYTHONDONTWRITEBYTECODE

CORES := $(shell nproc 2>/dev/null || echo 2)
# The number of processes for the unit tests: one more than cores, since some tests wait.
UNIT_WORKERS ?= $(shell echo $$(($(CORES) + 1)))
# The number of processes for the tests that use brokers or Spark. Each process has a separate broker and a separate Spark. They
# wait most of the time, so there are more processes than cores; memory limits them to six. WORKERS=0 runs all tests in one process.
WORKERS ?= $(shell n=$(CORES); echo $$((n < 4 ? 4 : n > 6 ? 6 : n)))
# The tests of `make test-rest` start clusters of brokers, browsers and Spark. With more at once than cores, brokers answer later than the
# time limits of the commands.
REST_WORKERS ?= $(shell n=$(CORES); n=$$((n < 2 ? 2 : n)); echo $$((n < $(WORKERS) ? n : $(WORKERS))))

UNIT_TESTS := tests/unit tests/models tests/fuzz tests/simulation
LIVE_TESTS := tests/broker tests/spark tests/docs
BY_FILE := --dist loadfile --no-loadscope-reorder
LIVE := -n $(WORKERS) $(BY_FILE)

# The broker releases of `make parity` and `make long WHAT=releases`, the slowest first. A release that cannot be started is a failure.
RELEASES ?= 4.3 4.0 3.10
# The PySpark versions of `make long WHAT=spark-matrix`, each in a separate environment.
SPARKS ?= 3.5 4.0 4.1 4.2 4.3
# The tests that it runs.
SPARK_TESTS ?= tests/spark tests/docs/test_lone_blocks.py tests/docs/test_readme.py
# The Python versions of `make long WHAT=python-matrix`, each in a separate environment. 3.14t is the free-threaded build.
PYTHONS ?= 3.11 3.12 3.13 3.14 3.14t
# The tests that it runs.
PYTHON_TESTS ?= tests/unit tests/models
# The versions of `make long WHAT=pika-matrix`, each in a separate folder.
PIKAS ?= 1.3.2 1.4.4 1.5.0rc1
PIKA_TESTS = tests/unit/broker $(addprefix tests/broker/test_,pika_connection.py message_carrier.py declaration.py)
# The fault tests of `make long WHAT=fire`. FIRE_TESTS=tests/fire/publisher runs some of them, and keeps the records of the others.
FIRE_TESTS ?= tests/fire tests/unit/consuming/test_channels.py
# The duration of `make long WHAT=soak` in minutes.
MINUTES ?= 30
# The number of seeds of `make long WHAT=simulate`.
SEEDS ?= 100000
# The names of the rules long/NAME.
RUNS := $(shell sed -n 's,^long/\([a-z-]*\):.*,\1,p' $(firstword $(MAKEFILE_LIST)))

.PHONY: help demo test test-unit test-live test-rest test-all quick parity long $(RUNS:%=long/%) check generated site bench build release lock audit clean
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## write 336,776 flights from Spark to RabbitMQ and check the queue of each one
	@echo "This installs PySpark and a broker if they are missing, publishes 336,776 flights, and checks the queue of each one: about 2 minutes."
	@$(MAKE) --no-print-directory java $(DEMO)
	@$(BIN)/python tests/support/server_installation.py # without Docker and RabbitMQ, root on Debian or Ubuntu installs a server
	@$(BIN)/python tests/support/with_broker.py examples/flights.py

test: ## unit tests, then the tests with a broker or Spark: 7 minutes on two cores, 10 with all set-up
	@"$(PYTHON)" tests/support/outlook.py
	@$(MAKE) --no-print-directory java test-unit test-live
	@echo "Not run: faults, clusters, restarts of brokers, and other slow tests. To run them: make test-all"

test-unit: $(STAMP) ## the unit tests of `make test`
	$(PYTEST) -n $(UNIT_WORKERS) --dist worksteal -m "not extended" $(UNIT_TESTS)

test-live: java $(SPARK_CLASSES) ## the tests of `make test` with a broker or Spark
	$(PYTEST) $(LIVE) -m "not extended" $(LIVE_TESTS)

# The unit tests among them compute while others wait. Only their files are collected: all of tests/unit would take ten seconds of each process.
test-rest: java $(SPARK_CLASSES) ## the tests that `make test` does not run, or not on the RabbitMQ of Debian 12, but for the slow ones
	$(PYTEST) -n $(REST_WORKERS) $(BY_FILE) -m "(extended or newer) and not slow" $(LIVE_TESTS) \
	  $$(grep -lrE 'mark[.](extended|docker|restarts)' $(UNIT_TESTS) --include='*.py')

test-all: java test-unit test-live test-rest long/slow ## all tests except parity and the other long runs

quick: $(STAMP) ## lint, types, and the unit tests of the packages that differ from the last commit: two minutes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/update.py --check
	$(PYTEST) -n auto --dist worksteal -m "not extended" $$($(BIN)/python tools/changed_tests.py)

parity: $(STAMP) $(AMQP10) ## a million real messages on each release of RELEASES: each is in the queue that was predicted
	RELEASES="$(RELEASES)" $(PYTEST) -n $(WORKERS) --no-loadscope-reorder tests/parity

# Each name of WHAT is a rule below, long/NAME.
long: ## a long run, for example `make long WHAT=fire`; without WHAT it lists them
	@[ -n "$(WHAT)" ] && [ -z "$(filter-out $(RUNS),$(WHAT))" ] || { { \
	  echo "make long WHAT=NAME, where NAME is one of"; \
	  awk -F ':.*## ' '/^long\/[a-z-]+:.*## / { printf "  %-14s %s\n", substr($$1, 6), $$2 }' $(MAKEFILE_LIST); } >&2; exit 2; }
	@$(MAKE) --no-print-directory $(WHAT:%=long/%)

long/slow: java $(SPARK_CLASSES) ## the slow tests, and some of the fault tests
	$(PYTEST) $(LIVE) -m slow $(LIVE_TESTS) tests/fire $$(grep -lr 'mark[.]slow' $(UNIT_TESTS) --include='*.py')

long/fire: java $(SPARK_CLASSES) ## all fault tests on 4.3 and 3.10; writes their results to docs/guarantees.md
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder --fire --fire-results docs/figures/guarantees.jsonl \
	  --chx-broker 4.3 --chx-broker 3.10 $(FIRE_TESTS)
	$(BIN)/python tools/update.py

long/releases: java $(SPARK_CLASSES) ## the tests of `make test` with a broker or Spark, on containers of 4.3, 4.0 and 3.10; writes the table of docs/reference/support.md
	@failed=; for release in $(RELEASES); do \
	  echo "== RabbitMQ $$release"; \
	  $(PYTEST) $(LIVE) -m "not extended" --chx-broker $$release --release-results docs/figures/releases.json $(LIVE_TESTS) || failed="$$failed $$release"; \
	done; \
	$(BIN)/python tools/update.py; \
	[ -z "$$failed" ] || { echo "the tests failed on RabbitMQ$$failed" >&2; exit 1; }

long/soak: java $(SPARK_CLASSES) ## publish and read a stream for MINUTES while its broker is killed repeatedly: memory, files, connections, rows
	$(PYTEST) -n 0 --soak-minutes $(MINUTES) --soak-results docs/figures/soak.json --fire-results docs/figures/guarantees.jsonl \
	  --chx-broker 4.3 tests/fire/test_stream_soak.py
	$(BIN)/python tools/update.py

long/fuzz: $(STAMP) ## millions of nearly valid frames, URLs, topology files and definitions; FUZZ_SEED=1 generates others
	FUZZ_CASES=1000000 $(PYTEST) -n auto --dist worksteal tests/fuzz

long/hand-over: $(STAMP) ## hundreds of slot hand-overs under load, with twenty crashes of the mover at each step, on 4.3 and 3.10
	HAND_OVER_DEATHS=20 $(PYTEST) -n auto tests/unit/broker/test_hand_over.py
	HAND_OVER_ROUNDS=20 HAND_OVER_PER_S=3000 HAND_OVER_ORDERED_PER_S=2000 $(PYTEST) -n 2 -rP --show-capture=log --log-level=WARNING \
	  --chx-broker 4.3 --chx-broker 3.10 tests/broker/test_slot_hand_over.py -k "lost or dies or overtaken"

long/simulate: $(STAMP) ## 100,000 simulated runs of publishers and thousands of groups with all kinds of faults, and a cut at every byte of a connection
	$(BIN)/python tests/simulation/explore.py --seeds $(SEEDS)
	STREAM_SEEDS=$(SEEDS) SHARED_SEEDS=$$(($(SEEDS) / 10)) GROUP_SEEDS=$$(($(SEEDS) / 100)) $(PYTEST) -n auto --dist worksteal --timeout 3600 \
	  tests/simulation/test_stream_seeds.py tests/simulation/test_shared_seeds.py tests/unit/consuming/test_stream_group_laws.py
	SIMULATION_STRIDE=1 $(PYTEST) -n auto --dist worksteal --timeout 3600 tests/simulation/test_every_byte.py

long/apply: $(STAMP) ## 1,000 histories of a model, and applies of 48 plans on 4.3 and 3.10, each ended at each of its operations: the rings of the records are the true ones
	APPLY_SEEDS=1000 $(PYTEST) -n auto --timeout 3600 tests/unit/broker/test_recording.py
	APPLY_PLANS=48 $(PYTEST) -n 2 --chx-broker 4.3 --chx-broker 3.10 tests/broker/test_ring_records.py -k whenever

long/claims: $(STAMP) ## 1,000 random histories of rings, with foreign binds, copies, killed applies and restarts, on each release: what every command claims is true
	CLAIM_HISTORIES=250 RELEASES="$(RELEASES)" $(PYTEST) -n 2 --no-loadscope-reorder tests/parity/test_topology_claims.py tests/parity/test_cluster_claims.py

long/advice: $(STAMP) ## 200 users in vhosts in many states, on each release: whatever a command advises can be run, and is not refused again
	ADVICE_CASES=200 $(PYTEST) -n 2 $(foreach release,$(RELEASES),--chx-broker $(release)) tests/broker/test_advice.py

long/churn: $(STAMP) ## members of a group join, leave and are killed under load for four minutes; checks that no message is lost or out of order
	$(BIN)/python bench/group_churn.py --seconds 120 --rate 3000

long/models: $(STAMP) ## all states of larger consumer groups, slot hand-overs and journals
	$(BIN)/python tests/models/group_exploration.py
	$(BIN)/python tests/models/hand_over_exploration.py
	$(BIN)/python tests/models/roster_exploration.py

long/peers: java $(STAMP) ## compare publishing with other clients, which it installs; writes the table of bench/README.md: 5 minutes
	$(BIN)/python bench/peers.py --results docs/figures/peers.json
	$(BIN)/python tools/update.py

long/spark-matrix: java ## the Spark tests on each PySpark version of SPARKS; tests that need a newer version are skipped
	@failed=; for version in $(SPARKS); do \
	  echo "== PySpark $$version"; \
	  $(MAKE) --no-print-directory test-spark-$$version || failed="$$failed $$version"; \
	done; \
	[ -z "$$failed" ] || { echo "the Spark tests failed on PySpark$$failed" >&2; exit 1; }

# PySpark 3.5 calls deprecated functions of its libraries, and 4.0 leaves sockets to the garbage collector.
test-spark-%: .venv-spark-%/.ready
	PYSPARK_PYTHON=$(abspath .venv-spark-$*/bin/python) PYSPARK_DRIVER_PYTHON=$(abspath .venv-spark-$*/bin/python) \
	  .venv-spark-$*/bin/python -m pytest $(SPARK_TESTS) \
	  -W default::DeprecationWarning -W default::FutureWarning \
	  -W default::ResourceWarning -W default::pytest.PytestUnraisableExceptionWarning

.PRECIOUS: .venv-spark-%/.ready
.venv-spark-%/.ready: pyproject.toml
	"$(PYTHON)" -m venv .venv-spark-$*
	.venv-spark-$*/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-spark-$*/bin/pip install --quiet --editable '.[aio,cli,spark,testing]' --group dev 'pyspark==$*.*'
	@touch $@

long/python-matrix: ## the unit tests on each Python version of PYTHONS; PYTHON_TESTS=tests/broker runs others
	@failed=; for version in $(PYTHONS); do \
	  echo "== Python $$version"; \
	  $(MAKE) --no-print-directory test-python-$$version || failed="$$failed $$version"; \
	done; \
	[ -z "$$failed" ] || { echo "the tests failed on Python$$failed" >&2; exit 1; }

test-python-%: .venv-python-%/.ready
	PYSPARK_PYTHON=$(abspath .venv-python-$*/bin/python) PYSPARK_DRIVER_PYTHON=$(abspath .venv-python-$*/bin/python) \
	  .venv-python-$*/bin/python -m pytest -n auto --dist worksteal $(PYTHON_TESTS)

.PRECIOUS: .venv-python-%/.ready
.venv-python-%/.ready: pyproject.toml
	@python=python$*; $$python -c '' 2>/dev/null || python=$$(ls -d $(HOME)/.pyenv/versions/$*.*/bin/python 2>/dev/null | tail -1); \
	"$${python:-python$*}" -m venv .venv-python-$*
	.venv-python-$*/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-python-$*/bin/pip install --quiet --editable '.[aio,cli,spark,testing]' --group unit
	@touch $@

long/pika-matrix: ## what uses pika on each version of PIKAS, with a broker and with warnings as errors
	@failed=; for version in $(PIKAS); do \
	  echo "== pika $$version"; \
	  $(MAKE) --no-print-directory test-pika-$$version || failed="$$failed $$version"; \
	done; \
	[ -z "$$failed" ] || { echo "the tests failed with pika$$failed" >&2; exit 1; }

test-pika-%: build/pika-%/.ready
	PYTHONPATH=$(abspath build/pika-$*) $(PYTEST) $(PIKA_TESTS)

.PRECIOUS: build/pika-%/.ready
build/pika-%/.ready: $(STAMP)
	$(BIN)/pip install --quiet --no-deps --target build/pika-$* 'pika==$*'
	@touch $@

check: $(STAMP) $(ACTIONLINT) ## formatting, lint, types, floors, generated files, workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/python tools/update.py --check
	$(BIN)/python tools/figures.py --check
	$(BIN)/zizmor --offline --quiet .
	@[ ! -x $(BIN)/actionlint ] || { echo actionlint; $(BIN)/actionlint; }

generated: $(STAMP) ## write the files that are generated from the code: tables, lists, and the figures for light and dark pages
	$(BIN)/python tools/update.py
	$(BIN)/python tools/figures.py

site: $(STAMP) $(DOCS) ## build the documentation with search and the Python reference in build/site; a broken link is an error
	@$(BIN)/python tools/website.py

bench: java $(STAMP) ## run the benchmarks; bench/README.md explains the results
	$(BIN)/python bench/indices.py
	$(BIN)/python bench/plan.py
	$(BIN)/python bench/apply.py
	$(BIN)/python bench/check.py
	$(BIN)/python bench/growth.py
	$(BIN)/python bench/slot_plan.py
	$(BIN)/python bench/slot_hop.py
	$(BIN)/python bench/group_rate.py
	$(BIN)/python bench/publish.py
	$(BIN)/python bench/service.py
	$(BIN)/python bench/stream_publish.py
	$(BIN)/python bench/stream_read.py
	$(BIN)/python bench/stream_follow.py
	$(BIN)/python bench/spark_streams.py
	$(BIN)/python bench/spark_write.py
	$(BIN)/python bench/client_routing.py
	$(BIN)/python bench/queue_for.py
	$(BIN)/python bench/stream_rows.py
	$(BIN)/python bench/peers.py
	$(BIN)/python bench/profile.py

build: $(STAMP) ## build the wheel and the source distribution in dist/
	$(BIN)/python -m build

# A release is made from a tag: the first line refuses anything else before the bill of materials is made, which takes minutes.
release: $(SUPPLY)/.ready ## build and check the release of the tag at HEAD in dist/: packages, checksums, bill of materials, notes
	$(SUPPLY)/bin/python tools/release.py --check
	rm -rf dist
	$(MAKE) --no-print-directory $(BILL)
	$(SUPPLY)/bin/python tools/release.py

lock: $(SUPPLY)/.ready ## write requirements.lock: the newest version of each package that a user installs, with hashes
	$(SUPPLY)/bin/uv pip compile --quiet --upgrade --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml

audit: $(BILL) ## write the bill of materials (CycloneDX) of the locked packages to dist/, and check them for known vulnerabilities
	$(SUPPLY)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

$(BILL): $(LOCKED)/.ready
	@mkdir -p $(@D)
	$(SUPPLY)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --output-file $@ $(LOCKED)/bin/python

$(SUPPLY)/.ready: pyproject.toml
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(SUPPLY)/bin/pip install --quiet --group supply
	@touch $@

# Only the packages of the lock file, and this package.
$(LOCKED)/.ready: requirements.lock $(SUPPLY)/.ready
	rm -rf $(LOCKED)
	$(PYTHON) -m venv --without-pip $(LOCKED)
	$(SUPPLY)/bin/pip --python $(LOCKED)/bin/python install --quiet --require-hashes --requirement requirements.lock
	$(SUPPLY)/bin/pip --python $(LOCKED)/bin/python install --quiet --no-deps .
	@touch $@

clean: ## remove everything that the targets have built, except the downloaded data
	rm -rf $(VENV) .venv-spark-* .venv-python-* $(SUPPLY) $(LOCKED) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache spark-warehouse metastore_db derby.log

# The packages of the demo. --no-compile: compiling only the imported modules takes less time than compiling all.
$(DEMO): pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { echo "$(PYTHON) does not exist: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is older: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot create a virtual environment: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing PySpark, Arrow, NumPy and clients into $(VENV)"
	@$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/pip install --no-compile --editable '.[aio,cli,spark,testing]'
	@touch $@

$(STAMP): $(DEMO)
	@echo "Installing the development tools into $(VENV)"
	@$(BIN)/pip install --no-compile --editable '.[aio,cli,spark,testing]' --group dev
	@touch $@

$(AMQP10): $(STAMP)
	@$(BIN)/pip install --quiet --group parity && touch $@ || \
	  echo "the AMQP 1.0 client was not installed: it needs a C compiler. AMQP 1.0 messages are not compared, and CI fails" >&2

$(ACTIONLINT): $(STAMP)
	@$(BIN)/pip install --quiet --group workflows >$(VENV)/.actionlint.log 2>&1 && touch $@ || \
	  echo "actionlint could not be downloaded, so zizmor alone checks the workflows: see $(VENV)/.actionlint.log" >&2

# The AMQP client of Node, for the tests of the other languages.
$(AMQPLIB): $(STAMP) examples/other_languages/node/package.json
	@mkdir -p $(@D) && cp examples/other_languages/node/package.json $(@D)
	@cd $(@D) && npm install --silent --no-package-lock && touch node_modules

$(DOCS): $(STAMP)
	@$(BIN)/pip install --quiet --group docs && touch $@

$(SPARK_CLASSES): $(STAMP) tools/spark_archive.py
	@$(BIN)/python tools/spark_archive.py >$(VENV)/.spark-classes.log 2>&1 || \
	  echo "the archive of Spark's classes was not created, so the Spark tests take longer: see $(VENV)/.spark-classes.log" >&2

# Spark 4 runs on Java 17 and newer; `java -version` prints  openjdk version "17.0.15" 2025-04-15.
.PHONY: java
java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	[ "$${version:-0}" -ge 17 ] || { echo "Spark needs Java 17 or newer; $$java is" \
	  "$${version:-not found}: on Debian, apt-get install openjdk-17-jre-headless" >&2; exit 1; }
