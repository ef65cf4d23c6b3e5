# rabbit_chx: every verb makes what it needs first. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO := $(VENV)/.demo
AMQP10 := $(VENV)/.amqp10
DOCS := $(VENV)/.docs
SUPPLY := .venv-supply
LOCKED := .venv-locked
SPARK_CLASSES := $(VENV)/.spark-classes.jsa
# The executors of a local Spark run the Python that has our packages, and the machine's Java.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
PYTEST := $(BIN)/python -m pytest
# Each process would compile our modules again, and each of pytest's workers all tests: a minute of CPU time.
unexport PYTHONDONTWRITEBYTECODE

# The tests that use brokers or Spark run in so many processes, each with a broker and a Spark of its own: more than two
# cores, since they wait much, and not many more than they have memory for. WORKERS=0 runs them in one.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 3 ? 3 : n > 6 ? 6 : n)))

UNIT_TESTS := tests/unit tests/fuzz tests/simulation
LIVE_TESTS := tests/broker tests/spark tests/docs
LIVE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Which broker releases `make parity` goes through, the longest first; one that is named and cannot be had is a failure.
RELEASES ?= 4.3 4.0 3.10 3.8
# Which versions of PySpark `make test-spark-matrix` goes through, each in an environment of its own.
SPARKS ?= 3.5 4.0 4.1 4.2 4.3
# And which tests it runs.
SPARK_TESTS ?= tests/spark tests/docs/test_spark.py tests/docs/test_placement.py tests/docs/test_readme.py
# Which versions of Python `make test-python-matrix` goes through, each in an environment of its own.
PYTHONS ?= 3.11 3.12 3.13
# And which tests it runs.
PYTHON_TESTS ?= tests/unit
# Which faults `make fire` makes; FIRE_TESTS=tests/fire/test_broker_faults.py makes some, and keeps the others' records.
FIRE_TESTS ?= tests/fire
# How many minutes `make soak` takes.
MINUTES ?= 30
# How many seeds `make simulate` goes through.
SEEDS ?= 100000

.PHONY: help demo test test-unit test-live test-rest test-all quick test-spark-matrix test-python-matrix parity fire soak fuzz simulate hand-over churn check generated figures site bench build lock sbom audit clean
help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: demo-begins java broker ## write 336,776 flights from Spark to RabbitMQ and prove where each one is
	@$(BIN)/python examples/flights.py

.PHONY: demo-begins
demo-begins:
	@echo "This installs PySpark and a broker if they are missing, publishes 336,776 flights, and checks the queue of each one: about 2 minutes."

test: java test-unit test-live ## unit tests, then those with one broker and one Spark: 8 minutes on two cores
	@echo "Left out: faults, clusters, brokers that restart, and other tests that take long. They run with: make test-all"

test-unit: $(STAMP) ## the first half of `make test`
	$(PYTEST) -n auto --dist worksteal -m "not extended" $(UNIT_TESTS)

test-live: java $(SPARK_CLASSES) ## the second half
	$(PYTEST) $(LIVE) -m "not extended" $(LIVE_TESTS)

test-rest: java $(SPARK_CLASSES) ## what `make test` leaves out
	$(PYTEST) -n auto --dist worksteal -m extended $(UNIT_TESTS)
	$(PYTEST) $(LIVE) -m extended $(LIVE_TESTS) tests/fire

test-all: test test-rest ## every test but parity, the matrices and most faults

quick: $(STAMP) ## lint, types, and the unit tests of what has changed since main: a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/affected_tests.py

test-spark-matrix: java ## the Spark tests on every PySpark of SPARKS; what one cannot do is skipped by name
	@failed=; for version in $(SPARKS); do \
	  echo "== PySpark $$version"; \
	  $(MAKE) --no-print-directory test-spark-$$version || failed="$$failed $$version"; \
	done; \
	[ -z "$$failed" ] || { echo "the Spark tests failed on PySpark$$failed" >&2; exit 1; }

# PySpark 3.5 uses what its libraries call deprecated, and 4.0 leaves sockets to the garbage collector.
test-spark-%: .venv-spark-%/.ready
	PYSPARK_PYTHON=$(abspath .venv-spark-$*/bin/python) PYSPARK_DRIVER_PYTHON=$(abspath .venv-spark-$*/bin/python) \
	  .venv-spark-$*/bin/python -m pytest $(SPARK_TESTS) \
	  -W default::DeprecationWarning -W default::FutureWarning \
	  -W default::ResourceWarning -W default::pytest.PytestUnraisableExceptionWarning

.PRECIOUS: .venv-spark-%/.ready
.venv-spark-%/.ready: pyproject.toml
	"$(PYTHON)" -m venv .venv-spark-$*
	.venv-spark-$*/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-spark-$*/bin/pip install --quiet --editable '.[aio,cli,plot,spark,testing]' --group dev 'pyspark==$*.*'
	@touch $@

test-python-matrix: ## the unit tests on every Python of PYTHONS; PYTHON_TESTS=tests/broker runs others
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
	.venv-python-$*/bin/pip install --quiet --editable '.[aio,cli,plot,spark,testing]' --group dev
	@touch $@

parity: $(STAMP) $(AMQP10) ## a million real messages on every broker of RELEASES, each where the mirror says
	RELEASES="$(RELEASES)" $(PYTEST) -n $(WORKERS) --no-loadscope-reorder tests/parity

fire: java $(SPARK_CLASSES) ## every fault on 4.3 and 3.10, and docs/guarantees.md from what came of it
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder --fire --fire-results docs/figures/guarantees.jsonl \
	  --chx-broker 4.3 --chx-broker 3.10 $(FIRE_TESTS)
	$(BIN)/python tools/update.py

soak: java $(SPARK_CLASSES) ## a stream for MINUTES while its broker is killed again and again: memory, files, connections, rows
	$(PYTEST) -n 0 --soak-minutes $(MINUTES) --soak-results docs/figures/soak.json --fire-results docs/figures/guarantees.jsonl \
	  --chx-broker 4.3 tests/fire/test_stream_soak.py
	$(BIN)/python tools/update.py

fuzz: $(STAMP) ## frames, URLs, topology files and definitions that are nearly right, by the million; FUZZ_SEED=1 takes others
	FUZZ_CASES=1000000 $(PYTEST) -n auto --dist worksteal tests/fuzz

hand-over: $(STAMP) ## slots change hands hundreds of times under load, and movers die twenty times at each step, on 4.3 and 3.10
	HAND_OVER_DEATHS=20 $(PYTEST) -n auto tests/unit/topology/test_slot_hand_over.py
	HAND_OVER_ROUNDS=20 HAND_OVER_PER_S=3000 HAND_OVER_ORDERED_PER_S=2000 $(PYTEST) -n 2 -rP --show-capture=log --log-level=WARNING \
	  --chx-broker 4.3 --chx-broker 3.10 tests/broker/test_slot_hand_over.py -k "lost or dies or overtaken"

simulate: $(STAMP) ## 100,000 simulated runs of the publishers with faults of all kinds, and a cut at every byte of a dialogue
	$(BIN)/python tests/simulation/explore.py --seeds $(SEEDS)
	STREAM_SEEDS=$(SEEDS) $(PYTEST) -n auto --dist worksteal --timeout 3600 tests/simulation/test_stream_seeds.py
	SIMULATION_STRIDE=1 $(PYTEST) -n auto --dist worksteal --timeout 3600 tests/simulation/test_every_byte.py

churn: $(STAMP) ## members of a group come, leave and are killed under load for four minutes; nothing is lost or out of order
	$(BIN)/python bench/group_churn.py --seconds 120 --rate 3000

check: $(STAMP) ## formatting, lint, types, floors, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/update.py --check

generated: $(STAMP) ## make again what is made from the code: tables, the list of packages
	$(BIN)/python tools/update.py

figures: $(STAMP) ## draw the pictures of the README and of the documents again, for light and dark pages
	$(BIN)/python tools/figures.py

site: $(STAMP) $(DOCS) ## the documentation with a search and the reference of the Python names, in build/site; a link that leads nowhere is an error
	@$(BIN)/python tools/website.py

bench: java $(STAMP) ## measure; bench/README.md says how to read it
	$(BIN)/python bench/indices.py
	$(BIN)/python bench/plan.py
	$(BIN)/python bench/apply.py
	$(BIN)/python bench/check.py
	$(BIN)/python bench/slot_plan.py
	$(BIN)/python bench/slot_hop.py
	$(BIN)/python bench/group_rate.py
	$(BIN)/python bench/publish.py
	$(BIN)/python bench/stream_publish.py
	$(BIN)/python bench/stream_read.py
	$(BIN)/python bench/spark_streams.py
	$(BIN)/python bench/spark_write.py
	$(BIN)/python bench/client_routing.py
	$(BIN)/python bench/queue_for.py
	$(BIN)/python bench/stream_rows.py

build: $(STAMP) ## the wheel and the source distribution, in dist/
	$(BIN)/python -m build

lock: $(SUPPLY)/.ready ## write requirements.lock: the newest version of all that a user installs, by its hashes
	$(SUPPLY)/bin/uv pip compile --quiet --upgrade --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml

sbom: $(LOCKED)/.ready ## the bill of materials of the locked packages, as CycloneDX, in dist/
	@mkdir -p dist
	$(SUPPLY)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --output-file dist/rabbit-chx.cdx.json $(LOCKED)/bin/python

audit: $(SUPPLY)/.ready ## known vulnerabilities of the locked packages; its data is on the network, and an error says if it is not to be had
	$(SUPPLY)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

$(SUPPLY)/.ready: pyproject.toml
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(SUPPLY)/bin/pip install --quiet --group supply
	@touch $@

# What the lock file names, and this package, and nothing else.
$(LOCKED)/.ready: requirements.lock $(SUPPLY)/.ready
	rm -rf $(LOCKED)
	$(PYTHON) -m venv --without-pip $(LOCKED)
	$(SUPPLY)/bin/pip --python $(LOCKED)/bin/python install --quiet --require-hashes --requirement requirements.lock
	$(SUPPLY)/bin/pip --python $(LOCKED)/bin/python install --quiet --no-deps .
	@touch $@

clean: ## remove what the verbs have made, but not the downloaded data
	rm -rf $(VENV) .venv-spark-* .venv-python-* $(SUPPLY) $(LOCKED) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache spark-warehouse metastore_db derby.log

# What the demo needs. Python compiles a module when it is first imported, which is less than compiling all of them.
$(DEMO): pyproject.toml tools/install.py
	@command -v "$(PYTHON)" >/dev/null || { echo "there is no $(PYTHON): make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is older: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot make a virtual environment: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing PySpark, Arrow, NumPy and clients into $(VENV)"
	@$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python tools/install.py --no-compile --editable '.[aio,cli,spark,testing]'
	@touch $@

$(STAMP): $(DEMO)
	@echo "Installing the tools of development into $(VENV)"
	@$(BIN)/python tools/install.py --no-compile --editable '.[aio,cli,plot,spark,testing]' --group dev
	@touch $@

$(AMQP10): $(STAMP)
	@$(BIN)/pip install --quiet --group parity && touch $@ || \
	  echo "no client for AMQP 1.0, which needs a C compiler: its messages are not compared, and CI fails" >&2

$(DOCS): $(STAMP)
	@$(BIN)/pip install --quiet --group docs && touch $@

$(SPARK_CLASSES): $(STAMP) tools/spark_archive.py
	@$(BIN)/python tools/spark_archive.py >$(VENV)/.spark-classes.log 2>&1 || \
	  echo "no archive of Spark's classes, so its tests take longer: $(VENV)/.spark-classes.log says why" >&2

# Where there is neither Docker nor a rabbitmq-server, root on Debian or Ubuntu gets one by apt-get for the demo; the tests do this too.
.PHONY: broker
broker: $(DEMO)
	@$(BIN)/python tests/support/server_installation.py

# Spark 4 runs on Java 17 and newer; `java -version` says  openjdk version "17.0.15" 2025-04-15.
.PHONY: java
java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	[ "$${version:-0}" -ge 17 ] || { echo "Spark needs Java 17 or newer; $$java is" \
	  "$${version:-not there}: on Debian, apt-get install openjdk-17-jre-headless" >&2; exit 1; }
