# Every target makes what it needs, from a fresh clone and a Python of 3.11 or later:
#   make demo    the tracing cache before and after patch_flax(), in one table
#   make test    the fast set of tests, in some two minutes; all tests: make test-all
#   make flax-tests   flax's own tests without and with patch_flax(), compared; --patch jax
#   make haiku-tests  dm-haiku's own tests without and with patch_jax(), compared
#   make new-wrappers   whether the installed flax wraps functions in ways that no table knows
#   make libraries   what programs over other JAX libraries trace, and what helps
#   make docs    the documentation, as a site in docs/_build/html
#   make dist    wheel and source distribution, built, checked and tested; all tests with ARGS=--all
#   make bench   what calls cost, before and after, written to docs/benchmarks.md
#   make compare the same questions to every memo, on both releases of flax: docs/compare.md
#   make lint    ruff and mypy
# Another interpreter:  make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv

# Python 3.11 has its last jax and flax; later ones get the newest, and no older than these.
ifeq ($(shell $(PYTHON) -c 'import sys; print(sys.version_info[:2] == (3, 11))'),True)
FLAX ?= 0.12.8
PINS = 'jax==0.10.2' 'flax==$(FLAX)'
else
PINS = 'jax>=0.12' 'flax>=0.12.12'
endif

python = $(VENV)/bin/python
# One file for each set of extras that is installed; pip adds them to one environment.
stamp = $(VENV)/.installed

.PHONY: demo test test-all flax-tests haiku-tests optax-tests numpyro-tests new-wrappers coverage libraries bench compare docs dist lint ruff format mypy clean
.DELETE_ON_ERROR:

demo: $(stamp)-flax
	@$(python) -m fnintern demo $(ARGS)

test: $(stamp)-test
	$(python) -m pytest -n 2 --dist loadfile $(ARGS)

test-all: $(stamp)-test
	$(python) -m pytest --all -n 2 --dist loadfile $(ARGS)

flax-tests: $(stamp)-suites
	$(python) tests/library_suites/run.py flax $(ARGS)

haiku-tests: $(stamp)-suites
	$(python) tests/library_suites/run.py haiku $(ARGS)

optax-tests numpyro-tests: $(stamp)-suites
	$(python) tests/library_suites/run.py $(@:-tests=) $(ARGS)

new-wrappers: $(stamp)-test
	$(python) -m pytest tests/test_new_wrappers.py $(ARGS)

coverage: $(stamp)-test
	$(python) -m benchmarks.coverage $(ARGS)

libraries: $(stamp)-libraries
	$(python) -m benchmarks.libraries $(ARGS)

bench: $(stamp)-bench
	$(python) -m benchmarks $(ARGS)

# The other Python gets an environment of its own; where it is missing, the page says so.
compare: $(stamp)-flax
	$(python) -m benchmarks.compare $(ARGS)

# Warnings are errors: a broken link, a name that no docstring has. Nothing is fetched.
docs: $(stamp)-docs
	rm -rf docs/_build
	$(python) -m sphinx -W --keep-going -n -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo 'Built docs/_build/html/index.html'

dist: $(stamp)-dist
	$(python) tests/distribution.py --python $(PYTHON) $(ARGS) $(PINS)

lint: ruff format mypy

ruff: $(stamp)-dev
	$(python) -m ruff check .

format: $(stamp)-dev
	$(python) -m ruff format --check .

mypy: $(stamp)-dev
	$(python) -m mypy --strict src tests benchmarks

clean:
	rm -rf $(VENV) docs/_build dist

$(stamp)-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'fnintern needs Python 3.11 or later; name one: make PYTHON=...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(stamp)-%: pyproject.toml Makefile | $(stamp)-venv
	@echo 'Installing fnintern[$*] into $(VENV) ...' >&2
	@$(python) -m pip install --quiet --editable '.[$*]' $(PINS)
	@touch $@
