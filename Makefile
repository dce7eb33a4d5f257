# Everything a fresh machine needs: Python >= 3.11 with venv and a C compiler. See CONTRIBUTING.md.

PYTHON ?= python3
PY := .venv/bin/python
SOURCES := pyproject.toml setup.py $(shell find ottla -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: build run test lint compat demo bench bench-quick

build: .venv/.built

.venv/.base:
	$(PYTHON) -m venv .venv
	$(PY) -m pip install -q "setuptools>=77" "Cython>=3.1"
	touch $@

# Bytecode is made here, so that a start is fast where Python is told not to write any. Extension modules whose
# source has moved or gone are removed first: they would still be imported.
.venv/.built: .venv/.base $(SOURCES)
	find ottla -name '*.so' | while read -r so; do [ -e "$${so%%.*}.pyx" ] || rm "$$so"; done
	$(PY) -m pip install -q --no-build-isolation -e .
	$(PY) -m compileall -q ottla
	touch $@

# What an extra of pyproject.toml names; installing ".[extra]" instead would compile everything again.
extra = $(PY) -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	print(*project['optional-dependencies']['$(1)'], sep='\n')" > .venv/$(1).txt && \
	$(PY) -m pip install -q -r .venv/$(1).txt

.venv/.test: .venv/.built pyproject.toml
	$(call extra,test)
	touch $@

.venv/.compat: .venv/.test pyproject.toml
	$(call extra,compat)
	touch $@

.venv/.lint: .venv/.base pyproject.toml
	$(call extra,lint)
	touch $@

run: build
	.venv/bin/ottla server start

test: .venv/.test
	.venv/bin/pytest -q

lint: .venv/.lint .venv/.test
	.venv/bin/ruff check ottla tests compat_tests benchmarks examples setup.py
	.venv/bin/mypy

# The stock clients; `compat_tests/setup` gets everything that they need. They wait more than they compute, so two
# files run at a time, each process with a broker of its own.
compat: .venv/.compat
	.venv/bin/pytest -q compat_tests -n 2 --dist loadfile --durations=10 --broker $(or $(BROKER),ottla)

demo: .venv/.compat
	.venv/bin/python -m compat_tests.demo

# Beside Apache Kafka on the same machine; needs Java 17 and Maven.
bench: .venv/.compat
	.venv/bin/python -m benchmarks.run_all

# Every question asked less: five minutes, not eighty.
bench-quick: .venv/.compat
	.venv/bin/python -m benchmarks.run_all --quick
