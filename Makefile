# Every job of the house, one word each. `make` alone lists them; all of them can be said again at any time.
# Everything is installed into $(VENV), made on first use with Python 3.11 or later: PYTHON=... says which one.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOCK := requirements.lock
T ?= tests
WORKERS ?= 3
ARGS ?=
COVERAGE = COVERAGE_FILE=$(CURDIR)/build/coverage/data $(BIN)/coverage
COVERED := tests/stomp tests/broker tests/store tests/server tests/conformance tests/system tests/cli/test_store.py tests/crash/test_damage.py
FLOORS := stomp:96 broker:95 store:95
HOUSE := tests/test_floors.py tests/test_rooms.py tests/test_mirrors.py tests/test_sourcecode.py

.DEFAULT_GOAL := help
.PHONY: help demo cluster test check bench bench-guard soak fronts followers coverage wheel release site reference lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.demo ## run the departures board on 336,776 flights, end to end (writes demo-output/)
	@$(BIN)/python -m demo $(ARGS)

cluster: $(VENV)/.dev ## run three nodes and three nats-servers under load, kill the leader twice, and say what became of it
	@$(BIN)/python -m tests.crash.cluster --log nats $(ARGS)

test: $(VENV)/.dev ## run the tests, WORKERS=3 side by side; T=tests/stomp only these, ARGS='-k name' for pytest, CHECKED=1 without those that make check has run
	@$(if $(filter tests,$(T)),$(BIN)/python -m tests.spark.classes || echo "make: the tests go on without")
	@$(BIN)/python -m pytest $(if $(filter tests,$(T)),-n $(WORKERS) --dist loadfile --no-loadscope-reorder) $(T) $(if $(CHECKED),$(HOUSE:%=--ignore=%)) $(ARGS)

check: $(VENV)/.dev ## ruff, ruff format, mypy --strict and the floors of the house
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --output-format concise .
	@$(BIN)/mypy
	@$(BIN)/mypy bench $(wildcard demo)
	@$(BIN)/python -m pytest -q $(HOUSE)

bench: $(VENV)/.dev ## measure Stompbox; ARGS='--peers artemis' beside others, '--rows queue --runs 1' in short
	@$(BIN)/python -m bench.run $(ARGS)

bench-guard: $(VENV)/.dev ## whether HEAD costs more than 10 % CPU for a message beside another commit; ARGS='--base main'
	@$(BIN)/python -m bench.guard $(ARGS)

soak: $(VENV)/.dev ## kill a broker 40 times under load, then 10 minutes with all features, cut power at every write, fail and raise at every call, upset the network and the servers of a cluster's logs, and its nodes 200 times on each engine, lose packets, kill Spark, play the wire cases in all versions to what is compiled; ARGS='--kills 100'
	@$(BIN)/python -m tests.crash.drill $(ARGS)
	@$(BIN)/python -m tests.crash.flips --flips 1000
	@for log in nats cut postgres standby; do $(BIN)/python -m tests.crash.cluster --log $$log --random 200 --between 1 || exit 1; done
	@for log in nats postgres; do $(BIN)/python -m tests.crash.cluster --log $$log --network namespaces --random 50 --between 1 || [ $$? = 77 ] || exit 1; done
	@$(BIN)/python -m tests.crash.mixture
	@SOAK=1 $(BIN)/python -m pytest -q -o faulthandler_exit_on_timeout=false tests/crash/test_power_loss.py tests/crash/test_faults.py \
	  tests/crash/test_broker_power_loss.py tests/crash/test_broker_faults.py tests/crash/test_calls.py tests/pipelines/test_kills.py tests/pipelines/test_archive.py \
	  tests/commitlog/test_networks.py tests/commitlog/test_jetstream.py
	@TESTED_VERSIONS=all $(BIN)/python -m pytest -q tests/compiled -k wire
	@$(BIN)/python -m tests.spark.soak
	@$(BIN)/python -m tests.spark.soak --writer arrow --kills 24 --batch 25000

fronts: $(VENV)/.dev ## play every wire case, strangers' clients and a long drill against brokers with two fronts
	@TESTED_FRONTS=2 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests/conformance tests/interop $(ARGS)
	@$(BIN)/python -m tests.crash.drill --fronts 2

followers: $(VENV)/.dev ## play every wire case and strangers' clients through a node that follows, which passes them to the one that leads
	@TESTED_FOLLOWER=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests/conformance tests/interop \
	  --ignore tests/conformance/test_fronts.py --ignore tests/conformance/test_followers.py $(ARGS)

coverage: $(VENV)/.dev ## how much of stomp/, broker/ and store/ the tests reach, lines and branches; fails below the FLOORS (build/coverage has the rest)
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(COVERAGE) run -m pytest -q -n $(WORKERS) --dist loadfile -p no:cacheprovider $(COVERED) $(ARGS)
	@$(COVERAGE) combine --quiet
	@$(COVERAGE) report --show-missing --skip-covered --skip-empty >build/coverage/missing.txt
	@short=; for floor in $(FLOORS); do room=$${floor%:*}; least=$${floor#*:}; \
	  reached=$$($(COVERAGE) report --include="src/stompbox/$$room/*" --format=total --precision=1); \
	  echo "$$room/: $$reached % of lines and branches, $$least % at least"; \
	  $(COVERAGE) report --include="src/stompbox/$$room/*" --format=total --fail-under=$$least >/dev/null || short="$$short $$room/"; \
	done; [ -z "$$short" ] || { echo "make: below the floor:$$short; build/coverage/missing.txt has the lines" >&2; exit 1; }

wheel: $(VENV)/.dev ## build the wheel that mypyc has compiled for this Python and machine into dist/: needs a C compiler, takes minutes
	@STOMPBOX_COMPILE=1 $(BIN)/python -m hatchling build --target wheel --directory dist

release: $(VENV)/.dev ## build both distributions into dist/, Stompbox also compiled, and try them in fresh environments: versions, a message sent and received
	@rm -rf dist
	@$(BIN)/python -m hatchling build --directory dist >/dev/null
	@STOMPBOX_COMPILE=1 $(BIN)/python -m hatchling build --target wheel --directory dist >/dev/null
	@cd packages/pyspark-stomp && $(abspath $(BIN))/python -m hatchling build --directory $(CURDIR)/dist >/dev/null
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/python -m tests.release dist

site: $(VENV)/.dev ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --config-file deploy/site/mkdocs.yml

reference: $(VENV)/.dev ## write the pages of docs/ that are made of the code: options, commands, API, client
	@$(BIN)/python -m stompbox.config.reference docs/configuration.md
	@$(BIN)/python -m stompbox.cli.reference docs/reference

lock: $(VENV)/.dev ## write the installed versions to requirements.lock
	@{ head -n 1 $(LOCK); $(BIN)/python -m pip freeze --exclude-editable; } >$(LOCK).new && mv $(LOCK).new $(LOCK)

clean: ## remove all that make made, the virtual environment too
	@rm -rf $(VENV) build dist demo-output bench/out .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find bench demo src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# ---- what the targets stand on ----

define install # the extras, the stamps that say so. Of what is not ours Python compiles what is imported, then: all of it takes a minute
@echo "installing Stompbox with [$(1)] into $(VENV) (once, a few minutes)"
@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(LOCK) --editable '.[$(1)]' \
  || { echo "make: pip could not install Stompbox with [$(1)] into $(VENV); the lines above say why" >&2; exit 1; }
@$(BIN)/python -m compileall -q src
@touch $(2)
endef

$(VENV)/.demo: pyproject.toml $(LOCK) | $(BIN)/python
	$(call install,demo,$@)

$(VENV)/.dev: pyproject.toml $(LOCK) | $(BIN)/python
	$(call install,$(strip dev,demo),$@ $(VENV)/.demo)

$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; \
	done; \
	[ -n "$$python" ] || { echo "make: no Python 3.11 or later found; PYTHON=... says which one to use" >&2; exit 1; }; \
	echo "making the virtual environment $(VENV) with $$($$python --version)"; \
	$$python -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "make: $$python could not make $(VENV); on Debian it needs the package python3-venv" >&2; exit 1; }
