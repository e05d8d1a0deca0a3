# Builds, tests, checks and measures everything. `make help` lists the targets; each one sets up
# what it needs below this directory, by lock file, and reports a missing toolchain.

PYTHON ?= python3
CARGO ?= cargo
export PYTHON CARGO
SHELL := bash
# Python environments. Each one contains exactly what its lock file lists: the lock files are
# complete, so pip resolves nothing (a requirement with extras, such as `google-auth[requests]`,
# would make it look at releases newer than the locked one).
VENV := .venv
VENV2 := .venv-openai2
BENCH_VENV := .venv-bench
FRAMEWORKS := .venv-frameworks
FRAMEWORKS2 := .venv-frameworks-openai2
MORE := .venv-frameworks-more
SCALE_OUT := .venv-scale-out
MORE2 := .venv-frameworks-more-openai2
AIPERF := .venv-aiperf
SHARE_PEERS := .venv-share-peers
DOCS := .venv-docs
OUT := out
DENY := .tools/bin/cargo-deny
DENY_VERSION := 0.20.2
PIP := -m pip install --quiet --disable-pip-version-check
LOCKS := bindings-python/requirements

# Tests use the cargo profile `dev`, because `cargo test` builds all crates with it anyway. The
# demo and the measurements of the packages use `wheel`, which is what users install.
# $(call built,PROFILE): the directory in which cargo puts the results of a profile.
built = target/$(if $(filter dev,$(1)),debug,$(1))
# The command that serves as the provider in tests and measurements.
export TIDEGATE_CLI = $(CURDIR)/$(call built,wheel)/tidegate
test-%: export TIDEGATE_CLI = $(CURDIR)/$(call built,dev)/tidegate

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find $(wildcard core sweep testing bindings-common) -type f \
    \( -path '*/src/*' -o -name Cargo.toml \))
WHEEL_SOURCES := $(RUST_SOURCES) $(shell find bindings-python/src bindings-python/python bindings-python/Cargo.toml \
    bindings-python/pyproject.toml -type f -not -name '*.pyc')
PYTHON_SOURCES := bindings-python/python bindings-python/tests examples bench/python bench/vllm tools tests/docs

NODE := bindings-node
NODE_SOURCES := $(RUST_SOURCES) $(shell find $(NODE)/src $(NODE)/ts $(NODE)/Cargo.toml $(NODE)/tsconfig.json -type f)
NODE_LIBRARY := libtidegate_node.$(if $(filter Darwin,$(shell uname)),dylib,so)
NODE_EXAMPLES := examples/node/node_modules/.ready
NODE_FRAMEWORKS := examples/node-frameworks/node_modules/.ready
# The test that opens the report of a sweep in a browser.
BROWSER := sweep/tests/browser

# Parts of `lint` and `test`. Those before `--` end before those behind it begin. Suites that talk to
# real sockets run alone: two of them at once on two cores run into the time limits of their clients.
LINT := lint-deny -- lint-clippy lint-python lint-node lint-docs lint-structure lint-advisories lint-format
TEST := test-build test-environments -- test-rust -- test-python -- test-openai2 -- test-node -- test-examples test-report test-docs
BENCH_RUST := noisy-neighbour burst-default burst-mixed cap cooldown outage cancel hot-path memory fairness \
    work-conserving starvation scale tokens kv burst aimd-history adaptive adaptive-gate pool herd failover sweep \
    share-gap share-rate share-headers share-chaos share-cooldown share-fair share-cost share-redis share-redis-chaos
BENCH_NODE := node node-abort node-memory
BENCH_PYTHON := python python-cap python-cooldown python-cancel frameworks python-memory install demo sweep-peer run share-peers
# Experiments on a real vLLM. They are no part of `make bench`, because they install 6 GB and take
# hours of an otherwise idle machine.
VLLM := objective default kv truth tenants share sweep pool
BENCH := $(BENCH_RUST) $(BENCH_PYTHON) $(BENCH_NODE)

.PHONY: help demo test test-frameworks test-scale-out lint parts advisories bench results docs docs-reference node setup lock fuzz \
    properties format clean \
    $(filter-out --,$(LINT) $(TEST)) \
    need-cargo need-python need-node cli $(addprefix bench-,$(BENCH)) vllm $(addprefix vllm-,$(VLLM))

help:
	@echo 'make demo        runs the official client without and with Tidegate while one of three tenants bursts (3 min)'
	@echo '                 TIDEGATE_BASE_URL=URL TIDEGATE_MODEL=NAME uses a server of yours, scaled to what it serves'
	@echo 'make test        runs all tests: $(filter-out --,$(TEST))'
	@echo 'make test-frameworks  runs the examples of more clients and frameworks, which take 2 GB (not in make test)'
	@echo 'make test-scale-out   runs gunicorn, Celery, Dask, Ray and a Node cluster, which take 1 GB (not in make test)'
	@echo 'make lint        runs all checks: $(filter-out --,$(LINT))'
	@echo '                 Both print one line per part, run JOBS=2 parts at a time, and keep the output in $(OUT)/parts.'
	@echo 'make advisories  checks Cargo.lock for known vulnerabilities; needs ADVISORY_DB=/path/to/advisory-db,'
	@echo '                 a clone of the RustSec database'
	@echo 'make results     renders bench/RESULTS.md from bench/results/'
	@echo 'make bench       runs all experiments, then make results; make bench-NAME runs one of'
	@echo '                 $(BENCH_RUST)'
	@echo '                 $(BENCH_PYTHON) $(BENCH_NODE)'
	@echo 'make vllm        runs the experiments on a real vLLM for CPUs, which takes 6 GB and hours; make vllm-NAME'
	@echo '                 runs one of $(VLLM)'
	@echo 'make properties  runs the property tests on CASES=10000 new random cases each'
	@echo 'make fuzz        fuzzes the parser of event streams until interrupted (needs nightly and cargo-fuzz)'
	@echo 'make setup       creates the environments without running anything'
	@echo 'make docs        builds the documentation site in $(OUT)/site; make docs-reference writes its derived pages'
	@echo 'make node        builds the Node package in $(NODE)'
	@echo 'make lock        updates the lock files of the Python environments (needs uv)'
	@echo 'make format      formats all sources'
	@echo 'make clean       removes everything that was built or installed'

# ---- demo

# To use a real server: TIDEGATE_BASE_URL, TIDEGATE_MODEL, OPENAI_API_KEY. The load and the caps are
# scaled to what the server serves at once. YES=1 sends without asking. ARGS are options of the demo.
demo: $(VENV)/.wheel cli
	@$(VENV)/bin/python examples/demo --tidegate $(call built,wheel)/tidegate --out $(OUT) $(ARGS)

# ---- tests

JOBS ?= 2
export JOBS

test:
	@.ci/run $(TEST)

parts:
	@echo $(LINT) -- $(TEST)

# Builds everything that the tests run. `test-environments` runs beside it, because installing packages
# waits for the network; it makes nothing that `test-build` makes too.
test-build: need-cargo $(VENV)/.dev $(OUT)/node/.dev
	$(CARGO) test --workspace --locked --no-run
	$(BUILD_DEV)

test-environments: $(addsuffix /.ready,$(VENV2) $(FRAMEWORKS) $(FRAMEWORKS2) $(DOCS)) $(NODE_EXAMPLES) \
    $(BROWSER)/node_modules/.ready

# Builds the command line, the libraries and the examples. Although tests need few crates of the
# workspace, all of them are named, because cargo then builds each dependency with the features that
# `cargo test` has built it with.
BUILD_DEV = $(CARGO) build --quiet --locked --workspace --lib --bin tidegate $(addprefix --example ,$(RUST_EXAMPLES))
RUST_EXAMPLES := chat adaptive_limit

# Property tests run the same cases each time; `make properties` runs new ones. Without redis-server,
# the tests that start one are left out.
test-rust: need-cargo
	@.ci/need redis || echo 'NOT TESTED: Redis as the store of shared limits'
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-20261121} $(CARGO) test --quiet --workspace --locked --no-fail-fast \
	    $$(.ci/need redis 2>/dev/null || echo -- --skip redis)

# Uses an installed browser or the one that TIDEGATE_BROWSER names; otherwise, on Linux, one from a
# package.
test-report: $(BROWSER)/node_modules/.ready need-cargo
	$(CARGO) test --quiet --workspace --locked --test report
	cd $(BROWSER) && npm test --silent

test-python: $(VENV)/.dev
	$(BUILD_DEV)
	cd bindings-python && ../$(VENV)/bin/python -m pytest -q

test-openai2: $(VENV2)/.dev
	$(BUILD_DEV)
	cd bindings-python && ../$(VENV2)/bin/python -m pytest -q

test-node: $(OUT)/node/.dev
	cd $(NODE) && npm test --silent

test-examples: $(FRAMEWORKS)/.dev $(FRAMEWORKS2)/.dev $(OUT)/node/.dev $(NODE_EXAMPLES)
	$(BUILD_DEV)
	$(PYTHON) examples/run.py --tidegate $(TIDEGATE_CLI) --environment openai3=$(FRAMEWORKS)/bin/python \
	    --environment openai2=$(FRAMEWORKS2)/bin/python --node node $(addprefix target/debug/examples/,$(RUST_EXAMPLES))

# Apart from `test`, because the packages take 1 GB, and the engines minutes. Needs Python 3.11 or newer.
test-scale-out: $(SCALE_OUT)/.dev $(OUT)/node/.dev $(NODE_EXAMPLES)
	@.ci/need redis || true
	$(SCALE_OUT)/bin/python examples/scale_out/run.py --node examples/node/node_modules $(ARGS)

# Apart from `test`, because the packages take 2 GB.
test-frameworks: $(MORE)/.dev $(MORE2)/.dev $(OUT)/node/.dev $(NODE_FRAMEWORKS)
	$(BUILD_DEV)
	$(PYTHON) examples/run.py --tidegate $(TIDEGATE_CLI) --environment more=$(MORE)/bin/python \
	    --environment more-openai2=$(MORE2)/bin/python --node node --node-folder node-frameworks

# Runs the code blocks of the documentation, and checks its links and its derived pages.
test-docs: $(FRAMEWORKS)/.dev $(DOCS)/.dev $(OUT)/node/.dev $(NODE_EXAMPLES)
	$(BUILD_DEV)
	$(PYTHON) tests/docs/check_links.py
	$(DOCS)/bin/python tests/docs/generate_reference.py --tidegate $(TIDEGATE_CLI) --check
	$(BUILD_SITE)
	$(FRAMEWORKS)/bin/python tests/docs/run_code_blocks.py --tidegate $(TIDEGATE_CLI) --node-modules examples/node/node_modules

properties: CASES ?= 10000
properties: need-cargo
	PROPTEST_CASES=$(CASES) $(CARGO) test --locked -p tidegate $(addprefix -p tidegate-,config policy protocol tokens sim)

# ---- documentation

# Zensical reads the same mkdocs.yml.
BUILD_SITE = NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
docs: $(DOCS)/.ready
	$(BUILD_SITE)
	@echo 'The site is in $(OUT)/site.'

docs-reference: $(DOCS)/.dev
	$(BUILD_DEV)
	$(DOCS)/bin/python tests/docs/generate_reference.py --tidegate $(call built,dev)/tidegate

# ---- checks

lint:
	@.ci/run $(LINT)

lint-format: need-cargo
	$(CARGO) fmt --all --check

lint-clippy: need-cargo
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package tidegate --no-default-features --locked -- -D warnings
	$(CARGO) clippy --package tidegate --all-features --all-targets --locked -- -D warnings

lint-docs: need-cargo
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

# Import cycles, impure crates, and retired or ambiguous names.
lint-structure: $(VENV)/.ready need-cargo
	$(PYTHON) tools/test_structure.py
	$(PYTHON) tools/structure
	cd bindings-python && PYTHONPATH=python ../$(VENV)/bin/lint-imports --no-logo --no-cache

# Excludes advisories: see `advisories`.
lint-deny: $(DENY)
	$(DENY) --log-level error --all-features check licenses bans sources

# Tests .ci/advisories on generated databases.
lint-advisories: $(DENY)
	.ci/test-advisories $(DENY)

# Checks Cargo.lock against a supplied clone of RustSec's advisory database:
# ADVISORY_DB=/path/to/it.
advisories: $(DENY)
	@.ci/advisories $(DENY) "$(ADVISORY_DB)"

lint-python: $(VENV)/.dev
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	cd bindings-python && ../$(VENV)/bin/mypy
	cd bindings-python && ../$(VENV)/bin/stubtest --allowlist stubtest.txt tidegate._native
	$(VENV)/bin/mypy --strict examples/demo/*.py

lint-node: $(OUT)/node/.dev
	cd $(NODE) && npm run --silent lint

# ---- measurements

# Each experiment stores its figures in bench/results; `render` makes bench/RESULTS.md of them.
bench: $(addprefix bench-,$(BENCH))
	$(BENCH_CLI) render

results: need-cargo
	$(BENCH_CLI) render

BENCH_CLI = $(CARGO) run --quiet --locked -p tidegate-bench --

# $(call MEASURE,COMMAND,NAME) runs a command. The last line of its output is the result, which is
# stored in bench/results/NAME.json.
MEASURE = mkdir -p $(OUT)/bench && set -o pipefail && { $(1); } | tee $(OUT)/bench/$(2).log \
    && $(BENCH_CLI) record $(OUT)/bench/$(2).log

$(addprefix bench-,$(BENCH_RUST)): bench-%: need-cargo
	@$(call MEASURE,$(CARGO) run --quiet --release --locked -p tidegate-bench -- $*,$*)

# The earlier version that `bench-python` compares with: the last one with reqwest as transport. Its
# sources and an environment with its wheel are in $(EARLIER).
EARLIER_COMMIT := 685ff8d0
EARLIER := $(OUT)/earlier-$(EARLIER_COMMIT)

$(EARLIER)/.source: | need-cargo
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@# Biome accepts no second configuration below that of this version.
	@git archive $(EARLIER_COMMIT) | tar -x -C $(@D) --exclude biome.json
	@touch $@

$(EARLIER)/.wheel: $(EARLIER)/.source $(VENV)/.ready | need-python
	@echo 'Building the Python package of $(EARLIER_COMMIT), for comparison.'
	@$(VENV)/bin/maturin build --locked --profile wheel --interpreter $(VENV)/bin/python \
	    --manifest-path $(@D)/bindings-python/Cargo.toml --out $(@D)/wheel
	@$(PYTHON) -m venv $(@D)/venv
	@$(@D)/venv/bin/python $(PIP) --no-deps --require-hashes -r $(LOCKS)/bench.txt
	@$(@D)/venv/bin/python $(PIP) --no-deps --no-index $(@D)/wheel/*.whl
	@touch $@

bench-python: $(BENCH_VENV)/.wheel $(EARLIER)/.wheel
	@$(call MEASURE,$(BENCH_VENV)/bin/python bench/python/bench_python.py --before $(EARLIER)/venv/bin/python,python)

bench-node: $(OUT)/node/.wheel
	@$(call MEASURE,node --expose-gc bench/node/bench_node.mjs,node)

# The limit of open files allows one descriptor for each stream.
bench-node-abort bench-node-memory: bench-node-%: $(OUT)/node/.wheel
	@ulimit -n 16384 && $(call MEASURE,node bench/node/$*.mjs,node-$*)

bench-python-cooldown bench-python-cancel bench-python-memory: bench-python-%: $(BENCH_VENV)/.wheel
	@$(call MEASURE,$(BENCH_VENV)/bin/python bench/python/$*.py,python-$*)

bench-install: $(BENCH_VENV)/.wheel
	@$(call MEASURE,$(BENCH_VENV)/bin/python bench/python/install.py $(OUT)/wheel/*.whl,install)

bench-demo: $(VENV)/.wheel cli
	@$(call MEASURE,$(VENV)/bin/python bench/python/demo.py --tidegate $(TIDEGATE_CLI) --out $(OUT)/demo,demo)

bench-run: $(BENCH_VENV)/.ready cli
	@$(call MEASURE,$(BENCH_VENV)/bin/python bench/python/run.py,run)

# Without this variable LiteLLM downloads a price list when it starts.
bench-python-cap: export LITELLM_LOCAL_MODEL_COST_MAP := True
bench-python-cap: $(FRAMEWORKS2)/.wheel
	@$(call MEASURE,$(FRAMEWORKS2)/bin/python bench/python/cap.py,python-cap)

bench-frameworks: export LITELLM_LOCAL_MODEL_COST_MAP := True
bench-frameworks: $(addsuffix /.wheel,$(FRAMEWORKS) $(FRAMEWORKS2) $(MORE) $(MORE2) $(OUT)/node) $(NODE_EXAMPLES) \
    $(NODE_FRAMEWORKS)
	@$(call MEASURE,$(PYTHON) bench/python/frameworks.py $(FRAMEWORKS)/bin/python \
	    $(FRAMEWORKS2)/bin/python $(MORE)/bin/python $(MORE2)/bin/python node,frameworks)

# Takes about 15 minutes, because aiperf restarts its services for each probe.
bench-sweep-peer: $(AIPERF)/.ready cli
	@$(call MEASURE,$(AIPERF)/bin/python bench/python/bench_sweep_peer.py,sweep-peer)

# Takes 25 minutes. token-throttle needs Python 3.12: PYTHON names one if `python3` is older.
bench-share-peers: export LITELLM_LOCAL_MODEL_COST_MAP := True
bench-share-peers: $(SHARE_PEERS)/.wheel
	@.ci/need redis
	@$(call MEASURE,$(SHARE_PEERS)/bin/python bench/python/share_peers.py,share-peers)

# ARGS are options of tidegate-bench, such as --seconds 20. With them, results are not stored.
# `run.py` installs vLLM in $(OUT)/vllm, with a Python of version 3.11 or newer.
vllm: $(addprefix vllm-,$(VLLM))

$(addprefix vllm-,$(VLLM)): vllm-%: need-cargo need-python
	@$(CARGO) build --quiet --release --locked -p tidegate-bench
	@$(if $(ARGS),$(PYTHON) bench/vllm/run.py $* $(ARGS),$(call MEASURE,$(PYTHON) bench/vllm/run.py $*,vllm-$*))

# ---- set-up

node: $(OUT)/node/.wheel

setup: $(addsuffix /.wheel,$(VENV) $(VENV2) $(FRAMEWORKS) $(FRAMEWORKS2) $(MORE) $(MORE2) $(OUT)/node) \
    $(NODE_EXAMPLES) cli

need-cargo:
	@.ci/need cargo
	@.ci/need cc

need-python:
	@.ci/need python

need-node:
	@.ci/need node

cli: need-cargo
	@echo 'Building the command line, optimised (minutes the first time).'
	@$(CARGO) build --locked --profile wheel -p tidegate-cli

# $(call environment,DIRECTORY,LOCK): an environment, created again when its lock file changes, and
# in it the wheel, installed again when the wheel changes. An environment holds the wheel of one
# profile at a time.
define environment
$(1)/.ready: $(2) | need-python
	@echo 'Installing the packages of $(2) in $(1).'
	@rm -rf $(1)
	@$$(PYTHON) -m venv $(1)
	@$(1)/bin/python $$(PIP) --no-deps --require-hashes -r $(2)
	@touch $$@

$(1)/.dev $(1)/.wheel: $(1)/.%: $(OUT)/%/.built $(1)/.ready
	@$(1)/bin/python $$(PIP) --force-reinstall --no-deps --no-index --find-links $(OUT)/$$* tidegate
	@rm -f $(1)/.dev $(1)/.wheel
	@touch $$@
endef

$(eval $(call environment,$(VENV),$(LOCKS)/test.txt))
$(eval $(call environment,$(VENV2),$(LOCKS)/test-openai2.txt))
$(eval $(call environment,$(BENCH_VENV),$(LOCKS)/bench.txt))
$(eval $(call environment,$(FRAMEWORKS),$(LOCKS)/frameworks.txt))
$(eval $(call environment,$(FRAMEWORKS2),$(LOCKS)/frameworks-openai2.txt))
$(eval $(call environment,$(MORE),$(LOCKS)/frameworks-more.txt))
$(eval $(call environment,$(MORE2),$(LOCKS)/frameworks-more-openai2.txt))
$(eval $(call environment,$(AIPERF),$(LOCKS)/aiperf.txt))
$(eval $(call environment,$(SHARE_PEERS),$(LOCKS)/share-peers.txt))
$(eval $(call environment,$(SCALE_OUT),$(LOCKS)/scale-out.txt))
$(eval $(call environment,$(DOCS),$(LOCKS)/docs.txt))

# Bytes of the wheel that users install.
WHEEL_LIMIT := 6000000

$(OUT)/dev/.built $(OUT)/wheel/.built: $(OUT)/%/.built: $(WHEEL_SOURCES) $(VENV)/.ready | need-cargo
	@echo 'Building the Python package with the profile $* (minutes the first time).'
	@rm -rf $(@D)
	@$(VENV)/bin/maturin build --locked --profile $* --interpreter $(VENV)/bin/python \
	    --manifest-path bindings-python/Cargo.toml --compression-level 9 --out $(@D)
	@$(if $(filter wheel,$*),.ci/at-most $(WHEEL_LIMIT) $(@D)/*.whl)
	@touch $@

# Installs exactly what the lock file lists, and runs no script of a package.
$(addsuffix /node_modules/.ready,$(NODE) $(BROWSER) examples/node examples/node-frameworks): %/node_modules/.ready: \
    %/package.json %/package-lock.json | need-node
	cd $* && npm ci --ignore-scripts --silent
	touch $@

# The package holds the native library of one profile at a time.
$(OUT)/node/.dev $(OUT)/node/.wheel: $(OUT)/node/.%: $(NODE_SOURCES) $(NODE)/node_modules/.ready | need-cargo
	$(if $(filter dev,$*),$(BUILD_DEV),$(CARGO) build --locked --profile $* -p tidegate-node)
	cp $(call built,$*)/$(NODE_LIBRARY) $(NODE)/tidegate.node
	rm -rf $(NODE)/dist
	cd $(NODE) && npm run --silent build
	mkdir -p $(@D)
	rm -f $(@D)/.dev $(@D)/.wheel
	touch $@

# Not optimised: it is fast enough, and builds in half the time.
$(DENY): | need-cargo
	$(CARGO) install cargo-deny --version $(DENY_VERSION) --locked --debug --root .tools

lock:
	@command -v uv >/dev/null || { echo 'missing: uv (pip install uv)' >&2; exit 1; }
	for name in test test-openai2 bench frameworks frameworks-openai2 frameworks-more \
	    frameworks-more-openai2 share-peers docs; do \
	    (cd $(LOCKS) && uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	        --custom-compile-command 'make lock' $$name.in -o $$name.txt) || exit 1; done
	for name in aiperf scale-out; do \
	    (cd $(LOCKS) && uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	        --custom-compile-command 'make lock' $$name.in -o $$name.txt) || exit 1; done

fuzz:
	@.ci/need nightly
	mkdir -p fuzz/corpus/sse
	$(CARGO) +nightly fuzz run sse fuzz/corpus/sse fuzz/seeds/sse

format: $(VENV)/.ready $(NODE)/node_modules/.ready
	$(CARGO) fmt --all
	$(VENV)/bin/ruff format $(PYTHON_SOURCES)
	cd $(NODE) && npm run --silent format

clean:
	rm -rf $(NODE)/node_modules $(NODE)/dist $(NODE)/tidegate.node examples/*/node_modules $(BROWSER)/node_modules
	rm -rf $(OUT) $(VENV) $(VENV2) $(BENCH_VENV) $(FRAMEWORKS) $(FRAMEWORKS2) $(MORE) $(MORE2) \
	    $(AIPERF) $(SCALE_OUT) $(DOCS) .tools
	$(CARGO) clean
