# Needs python3 (3.11 or newer) with venv, and make. Everything is installed into .venv, at the tested versions.
#
#   make search ARGS="--data data/iu_xray --time 2h"
#   make test ARGS="-k space"
#   make test-all
#   make lint
#   make docs
#   make examples ARGS="sst_lightning"

PYTHON ?= python3
PIP := .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ARGS ?=

.DELETE_ON_ERROR:
.PHONY: search doctor test test-all soak lint docs examples clean

search: .venv/installed
	.venv/bin/python -m autotune search $(ARGS)

doctor: .venv/installed
	.venv/bin/python -m autotune doctor

# Half of a test's time is waiting for processes: four at a time, of up to 1.5 GiB each, keep two cores busy. With six,
# importing all tests in each takes longer than that gains. The longest files do not come last: see `tests/conftest.py`.
PYTEST := .venv/bin/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# While working: the tests that take seconds, without those that `tests/unchanged.sh` leaves out unless ARGS names tests.
test: .venv/installed-test
	$(PYTEST) -m "not slow and not long" $(if $(findstring tests/,$(ARGS)),,$(shell tests/unchanged.sh)) $(ARGS)

# Whole searches and slow faults, too, one of each kind: before a change is handed in.
test-all: .venv/installed-test
	$(PYTEST) -m "not long" $(ARGS)

# Before a release. First every test once, in some twenty minutes; then the fault tests for as long as it takes: forty
# times the kills, 96 times the mutated inputs, 20,000 mutated sessions, every contract of every framework,
# and a trial of every example.
soak: .venv/installed-test
	$(PYTEST) $(ARGS)
	.venv/bin/python -m pytest -n 2 --dist loadfile --soak --timeout 0 tests/faults tests/contracts tests/examples \
		tests/gpu/test_training.py \
		tests/autotune/cli/test_train.py tests/autotune/inside/test_chance.py $(ARGS)

lint: .venv/installed-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

# The site, in build/site; a link that leads nowhere is an error. It needs no network.
docs: .venv/installed-test
	.venv/bin/python -m mkdocs build --strict

# Every example in full, minutes each: alone on the machine, or its figures mean little.
examples: .venv/installed-test
	PYTHON=.venv/bin/python examples/run.sh $(ARGS)

clean:
	rm -rf .venv build dist

# One environment, two stamps: searching installs no test tools, testing adds them. A stamp is written last, so that
# an install that was interrupted is done again; a change of what is wanted also installs again.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/installed-test: .venv/installed
	$(PIP) -e '.[test]'
	touch $@
