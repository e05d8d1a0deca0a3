# The only commands to know: make demo, make test, make bench, make lint. Each does all its own set-up, and says what toolchain is missing.

PYTHON ?= python3
CARGO ?= cargo
export PYTHON CARGO
SHELL := bash
# Environments, each exactly what its lock file says.
VENV := .venv
VENV2 := .venv-openai2
BENCH_VENV := .venv-bench
FRAMEWORKS := .venv-frameworks
FRAMEWORKS2 := .venv-frameworks-openai2
AIPERF := .venv-aiperf
OUT := out
DENY := .tools/bin/cargo-deny
DENY_VERSION := 0.20.2
PIP := -m pip install --quiet --disable-pip-version-check
LOCKS := bindings-python/requirements
# Optimised, without the link-time optimisation of a release; the wheel and the command line share what they build.
PROFILE := wheel
# Where cargo puts what that profile makes.
BUILT := target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
# Tests against a whole provider run its `sim`.
export TIDEGATE_CLI = $(CURDIR)/$(BUILT)/tidegate

WHEEL_SOURCES := Cargo.toml Cargo.lock $(shell find core/src core/Cargo.toml bindings-common sweep/src sweep/Cargo.toml testing/src testing/Cargo.toml bindings-python/src bindings-python/python \
    bindings-python/Cargo.toml bindings-python/pyproject.toml -type f -not -name '*.pyc')
PYTHON_SOURCES := bindings-python/python bindings-python/tests examples bench/python tools

# The Node package, its native half as cargo calls it here, and what its scripts are made from.
NODE := bindings-node
NODE_BUILT := $(OUT)/node/.built
# Where the report of a sweep is opened in a browser.
BROWSER := sweep/tests/browser
NODE_EXAMPLES := examples/node/node_modules/.ready
NODE_LIBRARY := $(BUILT)/libtidegate_node.$(if $(filter Darwin,$(shell uname)),dylib,so)
NODE_SOURCES := Cargo.toml Cargo.lock $(shell find core/src core/Cargo.toml bindings-common testing/src testing/Cargo.toml $(NODE)/src $(NODE)/Cargo.toml -type f)
NODE_SCRIPTS := $(shell find $(NODE)/ts -type f) $(NODE)/tsconfig.json

LINT := lint-format lint-clippy lint-docs lint-structure lint-deny lint-advisories lint-python lint-node
TEST := test-rust test-report test-python test-openai2 test-node test-examples
BENCH_RUST := noisy-neighbour cap cooldown outage cancel hot-path memory fairness work-conserving starvation scale tokens kv burst aimd-history adaptive adaptive-gate pool herd failover sweep
BENCH_NODE := node node-abort node-memory
BENCH_PYTHON := python python-cap python-cooldown python-cancel frameworks python-memory sweep-peer run

.PHONY: help demo test lint advisories bench node setup lock fuzz properties format clean $(LINT) $(TEST) need-cargo need-python need-node cli \
    $(addprefix bench-,$(BENCH_RUST) $(BENCH_PYTHON) $(BENCH_NODE))

help:
	@echo 'make demo        three tenants, one bursts: the official client as it is, then wrapped (2 min)'
	@echo 'make test        every test:  $(TEST)'
	@echo 'make lint        every check: $(LINT)'
	@echo 'make advisories  known vulnerabilities in Cargo.lock; ADVISORY_DB=/path/to/advisory-db, a clone of the RustSec database'
	@echo 'make bench       every experiment, and bench/RESULTS.md; make bench-NAME runs one:'
	@echo '                 $(BENCH_RUST)'
	@echo '                 $(BENCH_PYTHON) $(BENCH_NODE)'
	@echo 'make properties  every property on new cases, CASES=10000 of each'
	@echo 'make fuzz        the fuzz target, until interrupted (needs nightly and cargo-fuzz)'
	@echo 'make setup       the environments, without running anything'
	@echo 'make node        the Node package, built in its folder'
	@echo 'make lock        the lock files of the Python environments anew (needs uv)'

# ---- the demo

# A server of your own: TIDEGATE_BASE_URL, TIDEGATE_MODEL, OPENAI_API_KEY; YES=1 sends without asking; ARGS are the demo's own options.
demo: $(VENV)/.wheel cli
	@$(VENV)/bin/python examples/demo --tidegate $(BUILT)/tidegate --out $(OUT) $(ARGS)

# ---- tests

test: $(TEST)

# The same cases each time: whoever changes nothing sees nothing change. `make properties` looks further.
test-rust: need-cargo
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-20261121} $(CARGO) test --workspace --locked

# In a browser that is installed, or that TIDEGATE_BROWSER names; else, on Linux, in one out of a package.
test-report: $(BROWSER)/node_modules/.ready need-cargo
	$(CARGO) test --quiet --workspace --locked --test report
	cd $(BROWSER) && npm test --silent

# Every property on new cases, CASES of each.
properties: CASES ?= 10000
properties: need-cargo
	PROPTEST_CASES=$(CASES) $(CARGO) test --locked -p tidegate -p tidegate-sim

test-python: $(VENV)/.wheel cli
	cd bindings-python && ../$(VENV)/bin/python -m pytest -q

test-openai2: $(VENV2)/.wheel cli
	cd bindings-python && ../$(VENV2)/bin/python -m pytest -q

test-node: $(NODE_BUILT) cli
	cd $(NODE) && npm test --silent

# With what `cargo test` has built: its profile and features.
test-examples: $(FRAMEWORKS)/.wheel $(FRAMEWORKS2)/.wheel $(NODE_EXAMPLES)
	$(CARGO) build --quiet --workspace --bins --examples --locked
	$(PYTHON) examples/run.py --tidegate target/debug/tidegate --environment openai3=$(FRAMEWORKS)/bin/python \
	    --environment openai2=$(FRAMEWORKS2)/bin/python --node node target/debug/examples/chat target/debug/examples/adaptive_limit

# ---- checks

lint: $(LINT)

lint-format: need-cargo
	$(CARGO) fmt --all --check

lint-clippy: need-cargo
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

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

# Checks Cargo.lock against a supplied clone of RustSec's advisory database: ADVISORY_DB=/path/to/it.
advisories: $(DENY)
	@.ci/advisories $(DENY) "$(ADVISORY_DB)"

lint-python: $(VENV)/.wheel
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	cd bindings-python && ../$(VENV)/bin/mypy
	cd bindings-python && ../$(VENV)/bin/stubtest --allowlist stubtest.txt tidegate._native
	$(VENV)/bin/mypy --strict examples/demo/*.py

lint-node: $(NODE_BUILT)
	cd $(NODE) && npm run --silent lint

# ---- figures

# One line of JSON each; then all of them as a table.
bench: $(addprefix bench-,$(BENCH_RUST) $(BENCH_PYTHON) $(BENCH_NODE))
	cat $(foreach name,$(BENCH_RUST) $(BENCH_PYTHON) $(BENCH_NODE),$(OUT)/bench/$(name).json) > $(OUT)/bench.jsonl
	$(CARGO) run --quiet --release --locked -p tidegate-bench -- render $(OUT)/bench.jsonl > $(OUT)/RESULTS.md
	cat bench/shortfalls.md >> $(OUT)/RESULTS.md
	mv $(OUT)/RESULTS.md bench/RESULTS.md

# The last line is the result.
MEASURE = mkdir -p $(OUT)/bench && set -o pipefail && { $(1); } | tee $(OUT)/bench/$(2).log \
    && tail -n 1 $(OUT)/bench/$(2).log > $(OUT)/bench/$(2).json

$(addprefix bench-,$(BENCH_RUST)): bench-%: need-cargo
	@$(call MEASURE,$(CARGO) run --quiet --release --locked -p tidegate-bench -- $*,$*)

bench-python: $(BENCH_VENV)/.wheel
	@$(call MEASURE,$(BENCH_VENV)/bin/python bench/python/bench_python.py,python)

bench-node: $(NODE_BUILT)
	@$(call MEASURE,node --expose-gc bench/node/bench_node.mjs,node)

# As many descriptors as streams.
bench-node-abort bench-node-memory: bench-node-%: $(NODE_BUILT)
	@ulimit -n 16384 && $(call MEASURE,node bench/node/$*.mjs,node-$*)

bench-python-cooldown bench-python-cancel bench-python-memory: bench-python-%: $(BENCH_VENV)/.wheel
	@$(call MEASURE,$(BENCH_VENV)/bin/python bench/python/$*.py,python-$*)

bench-run: $(BENCH_VENV)/.ready cli
	@$(call MEASURE,$(BENCH_VENV)/bin/python bench/python/run.py,run)

# LiteLLM looks up prices on the network as it starts, unless told not to.
bench-python-cap: export LITELLM_LOCAL_MODEL_COST_MAP := True
bench-python-cap: $(FRAMEWORKS2)/.wheel
	@$(call MEASURE,$(FRAMEWORKS2)/bin/python bench/python/cap.py,python-cap)

bench-frameworks: export LITELLM_LOCAL_MODEL_COST_MAP := True
bench-frameworks: $(FRAMEWORKS)/.wheel $(FRAMEWORKS2)/.wheel $(NODE_EXAMPLES)
	@$(call MEASURE,$(PYTHON) bench/python/frameworks.py $(FRAMEWORKS)/bin/python $(FRAMEWORKS2)/bin/python node,frameworks)

# Both are given what the command line is built as by `make`; aiperf's services come and go for each of its probes, a quarter of an hour in all.
bench-sweep-peer: $(AIPERF)/.ready cli
	@$(call MEASURE,$(AIPERF)/bin/python bench/python/bench_sweep_peer.py,sweep-peer)

# ---- set-up

node: $(NODE_BUILT)

setup: $(VENV)/.wheel $(VENV2)/.wheel $(FRAMEWORKS)/.wheel $(FRAMEWORKS2)/.wheel $(NODE_EXAMPLES) cli

need-cargo:
	@.ci/need cargo
	@.ci/need cc

need-python:
	@.ci/need python

need-node:
	@.ci/need node

cli: need-cargo
	$(CARGO) build --quiet --locked --profile $(PROFILE) -p tidegate-cli

# An environment, anew when its lock file changes; the wheel in it, anew when the wheel does.
define environment
$(1)/.ready: $(2) | need-python
	rm -rf $(1)
	$$(PYTHON) -m venv $(1)
	$(1)/bin/python $$(PIP) --require-hashes -r $(2)
	touch $$@

$(1)/.wheel: $(OUT)/wheel/.built $(1)/.ready
	$(1)/bin/python $$(PIP) --force-reinstall --no-deps --no-index --find-links $(OUT)/wheel tidegate
	touch $$@
endef

$(eval $(call environment,$(VENV),$(LOCKS)/test.txt))
$(eval $(call environment,$(VENV2),$(LOCKS)/test-openai2.txt))
$(eval $(call environment,$(BENCH_VENV),$(LOCKS)/bench.txt))
$(eval $(call environment,$(FRAMEWORKS),$(LOCKS)/frameworks.txt))
$(eval $(call environment,$(FRAMEWORKS2),$(LOCKS)/frameworks-openai2.txt))
$(eval $(call environment,$(AIPERF),$(LOCKS)/aiperf.txt))

$(OUT)/wheel/.built: $(WHEEL_SOURCES) $(VENV)/.ready | need-cargo
	rm -rf $(OUT)/wheel
	$(VENV)/bin/maturin build --quiet --locked --profile $(PROFILE) --interpreter $(VENV)/bin/python \
	    --manifest-path bindings-python/Cargo.toml --out $(OUT)/wheel
	touch $@

# Exactly what the lock file says; no package's own scripts are run.
$(NODE)/node_modules/.ready: $(NODE)/package.json $(NODE)/package-lock.json | need-node
	cd $(NODE) && npm ci --ignore-scripts --silent
	touch $@

$(BROWSER)/node_modules/.ready: $(BROWSER)/package.json $(BROWSER)/package-lock.json | need-node
	cd $(BROWSER) && npm ci --ignore-scripts --silent
	touch $@

examples/node/node_modules/.ready: examples/node/package.json examples/node/package-lock.json $(NODE_BUILT)
	cd examples/node && npm ci --ignore-scripts --silent
	touch $@

$(NODE)/tidegate.node: $(NODE_SOURCES) | need-cargo
	$(CARGO) build --quiet --locked --profile $(PROFILE) -p tidegate-node
	cp $(NODE_LIBRARY) $@

$(NODE_BUILT): $(NODE)/tidegate.node $(NODE)/node_modules/.ready $(NODE_SCRIPTS)
	rm -rf $(NODE)/dist
	cd $(NODE) && npm run --silent build
	mkdir -p $(@D)
	touch $@

# Unoptimised: it is quick enough so, and built in half the time.
$(DENY): | need-cargo
	$(CARGO) install cargo-deny --version $(DENY_VERSION) --locked --debug --root .tools

lock:
	@command -v uv >/dev/null || { echo 'missing: uv (pip install uv)' >&2; exit 1; }
	for name in $(LOCKS)/test $(LOCKS)/test-openai2 $(LOCKS)/bench $(LOCKS)/frameworks $(LOCKS)/frameworks-openai2; do \
	    (cd $$(dirname $$name) && uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	        --custom-compile-command 'make lock' $$(basename $$name).in -o $$(basename $$name).txt) || exit 1; done
	cd $(LOCKS) && uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --custom-compile-command 'make lock' aiperf.in -o aiperf.txt

fuzz:
	@.ci/need nightly
	mkdir -p fuzz/corpus/sse
	$(CARGO) +nightly fuzz run sse fuzz/corpus/sse fuzz/seeds/sse

format: $(VENV)/.ready $(NODE)/node_modules/.ready
	$(CARGO) fmt --all
	$(VENV)/bin/ruff format $(PYTHON_SOURCES)
	cd $(NODE) && npm run --silent format

clean:
	rm -rf $(NODE)/node_modules $(NODE)/dist $(NODE)/tidegate.node examples/node/node_modules $(BROWSER)/node_modules
	rm -rf $(OUT) $(VENV) $(VENV2) $(BENCH_VENV) $(FRAMEWORKS) $(FRAMEWORKS2) $(AIPERF) .tools
	$(CARGO) clean
