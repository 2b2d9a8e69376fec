# SPDX-License-Identifier: Apache-2.0
# Two commands to know: make demo, make test.

export PATH := $(HOME)/.cargo/bin:$(PATH)

# make demo ROS=2 LINK=radio; make bench CASE=3mbps RUNS=3
ROS ?= 1
LINK ?= token-bucket
CASE ?= all
# Empty: 1, or 10 for CASE=recovery.
RUNS ?=
FUZZ_SECONDS ?= 15
# Empty: all targets.
FUZZ_TARGETS ?=
# full: the studies as documented, about 95 minutes.
STUDY ?= quick
CARGO_DENY = 0.20.2

# amd64 or arm64; empty: this machine's, and both in packages-test.
ARCH ?=

.PHONY: help setup ros2 build packages packages-test packages-check packages-reproducible demo layout lint clippy check test test-programs test-sources bench validate study restaurant restaurant-open smoke parity realtime deny docs fuzz measure

help:
	@echo "make demo    Tautline beside plain ROS 1 on a 6 Mbps link (under three minutes after the build);"
	@echo "             LINK=token-bucket|radio: full duplex by the kernel, or a half-duplex 802.11 channel;"
	@echo "             ROS=2: rclpy beside plain ROS 2 (Fast DDS), installed into target/ros2"
	@echo "make check   the inner loop: format, structure, lints, unit tests"
	@echo "make test    format, lints, unit tests, dependencies, documentation, real ROS at both ends, fuzzing; the last line names what was not run"
	@echo "make fuzz    all fuzz targets; FUZZ_SECONDS=600 each, FUZZ_TARGETS='config xml_rpc'"
	@echo "make bench   all measured cases; CASE=6mbps|6mbps-rate|3mbps|3mbps-rate|6mbps-loss|6mbps-radio|idle|header|five-peers|recovery|reload|crypto|flood|attack|links|bottleneck|ros2-gateway, RUNS=n, ROS=2"
	@echo "make validate  the radio model against a reference, against real programs, and its speed; rate control (docs/explanation/rates.md); the planner"
	@echo "make measure  all tables of the documentation again at this commit (nine hours), or those of ONLY=cost,losses; RESUME=1: those that are missing"
	@echo "make study   the studies of scaling, DDS and real time (docs/explanation/study-*.md), under ten minutes; STUDY=full: as documented"
	@echo "make restaurant  two robots with their own ROS serve six tables over one radio, about eight minutes;"
	@echo "             ORDERS=50 ROBOTS=1+2,1+1,2+2 TRANSPORTS=tautline,plain: longer, and without Tautline"
	@echo "make restaurant-open  the same, open for your browser at http://127.0.0.1:9090/ until Ctrl+C; PORT=n"
	@echo "make parity  seeded situations within one ROS graph and across Tautline, compared; SEEDS=500"
	@echo "make docs    the documentation as a site: target/docs-site/index.html"
	@echo "make build   the release binaries: target/release/tautline and tautline-lab"
	@echo "make packages  the packages for Debian and Ubuntu and an archive, in target/packages/out; ARCH=arm64"
	@echo "make packages-test  installs, upgrades and removes them in clean roots of three Debian releases, with real ROS; as root"
	@echo "make packages-reproducible  builds them twice in two folders, and compares them"
	@echo "make setup   installs the Debian packages that are missing (the others do it too)"

setup:
	@crates/lab/setup.sh

# Debian's DDS is as old as Humble, for which there are no Python wheels.
ros2:
	@crates/lab/setup.sh cyclonedds-tools cyclonedds-dev libfastrtps-dev
	@crates/lab/ros2.sh

build: setup
	cargo build --release --locked -p tautline-cli -p tautline-lab

# Everything that users install. ARCH=arm64 is built on amd64.
packages: setup
	@crates/lab/setup.sh debhelper xz-utils binutils-x86-64-linux-gnu binutils-aarch64-linux-gnu
	@packaging/build.sh $(ARCH)

packages-reproducible: packages
	@packaging/reproducible.sh $(ARCH)

# The roots of the releases are made once, below target/roots.
packages-test: setup ros2
	@crates/lab/setup.sh debootstrap lintian systemd-container qemu-user-static binfmt-support zstd
	@for arch in $(or $(ARCH),amd64 arm64); do $(MAKE) --no-print-directory packages ARCH=$$arch || exit 1; done
	@/usr/bin/python3 packaging/test/packages.py $(if $(ARCH),--arch $(ARCH))

# What can be checked about the packages without building them: the crates are complete, and the
# units are valid for systemd.
CRATES = cargo package --workspace --exclude tautline-lab --exclude tautline-testkit --exclude tautline-study --exclude tautline-restaurant --locked --allow-dirty --no-verify --quiet
VERIFY = target/tmp/units
packages-check: setup
	@$(CRATES)
	@rm -rf $(VERIFY) && mkdir -p $(VERIFY)
	@for unit in packaging/*.service packaging/*.timer; do \
		sed 's#/usr/bin/tautline#/bin/true#' $$unit > $(VERIFY)/$${unit##*/}; done
	@systemd-analyze verify --man=no $(VERIFY)/*

demo: build
	@[ "$(ROS)" != 2 ] || crates/lab/ros2.sh kilted
	@target/release/tautline-lab demo --ros $(ROS) --link $(LINK)

bench: build
	@[ "$(ROS)" != 2 -a "$(CASE)" != ros2-gateway ] || crates/lab/ros2.sh kilted
	@target/release/tautline-lab bench $(CASE) --ros $(ROS) $(if $(RUNS),--runs $(RUNS))

layout: setup
	cargo fmt --all --check
	@checks/structure.py
	@checks/map.py
	@/usr/bin/python3 -m unittest discover -q crates/lab/measure

lint: layout clippy

clippy: setup
	cargo clippy --workspace --all-targets --locked -- -D warnings

# The inner loop: no ROS, no network, no other machine.
check: lint
	cargo test --workspace --lib --bins --locked -q

# The last line counts and names what was not run. Tests add lines to the same file.
NOT_RUN = target/not-run
export TAUTLINE_NOT_RUN = $(CURDIR)/$(NOT_RUN)
# Real-time tests that a busy machine may skip; each says so in NOT_RUN.
MAX_SKIPPED = 2

# Tests mostly wait, so compilers and checks that share nothing with them run at the same time, with a
# lower priority. Real-time tests run alone.
SOURCES_LOG = target/tmp/test-sources.log
test: setup ros2 layout
	@mkdir -p target/tmp && rm -f $(NOT_RUN)
	cargo test --workspace --locked --no-run
	@nice -n 19 $(MAKE) --no-print-directory test-sources > $(SOURCES_LOG) 2>&1 & sources=$$!; \
	$(MAKE) --no-print-directory test-programs; programs=$$?; \
	echo "make test: waits for the lints, deny, docs, packages-check and fuzz ($(SOURCES_LOG))"; \
	wait $$sources; sources=$$?; cat $(SOURCES_LOG); [ $$programs = 0 -a $$sources = 0 ]
	@$(MAKE) --no-print-directory realtime
	@skipped=$$(grep -c '(skipped: .*emulator' $(NOT_RUN) 2>/dev/null); \
	[ $${skipped:-0} -le $(MAX_SKIPPED) ] || { \
		echo "make test: failed: $$skipped real-time tests were skipped, at most $(MAX_SKIPPED) may be:"; \
		grep '(skipped: ' $(NOT_RUN); exit 1; }
	@echo "make test: passed$$(test ! -s $(NOT_RUN) || { \
		sed -z 's/\n/, /g; s/, $$//; s/^/; '$$(wc -l < $(NOT_RUN))' not run: /' $(NOT_RUN); })"

# Only work that needs nothing but processors: no real time, no ROS, no namespaces.
# clippy does not come first: the programs would wait while it locks the build folder.
test-sources: deny docs packages-check clippy fuzz

# These compare measured rates with limits: they run alone, with the real-time tests.
TIMED = ecn::a_policer_that_marks_loses_nothing_and_its_rate_is_kept \
	planned::slow_radios_and_unplanned_topics_are_reported
test-programs:
	@# Floods hold more connections than the usual 1024. All failures are shown, not only the first.
	ulimit -n 8192 2>/dev/null; cargo test --workspace --locked --no-fail-fast -- $(TIMED:%=--skip %)
	@# Tests of realtime run later. Without a package of the workspace, all would be built once more.
	@cargo test --workspace --test realtime --locked -q -- --ignored --list 2>/dev/null > target/tmp/realtime
	@cargo test --workspace --locked -q -- --ignored --list 2>/dev/null \
		| grep -vxFf target/tmp/realtime | sed -n 's/: test$$/ (ignored)/p' >> $(NOT_RUN)
	@$(MAKE) --no-print-directory smoke parity

validate: build
	@target/release/tautline-lab validate dcf --docs docs
	@target/release/tautline-lab validate speed
	-@target/release/tautline-lab validate cost
	@target/release/tautline-lab validate air
	@target/release/tautline-lab validate relays
	@target/release/tautline-lab validate links --docs docs
	-@target/release/tautline-lab validate losses
	@target/release/tautline-lab validate rates --docs docs
	-@target/release/tautline-lab validate traces
	-@target/release/tautline-lab validate unknown --seeds 180 --docs docs
	-@target/release/tautline-lab validate plans --expect docs/measured/plans.json

# Every table of the documentation, from one commit. It builds and installs what its rows need.
ONLY ?=
RESUME ?=
measure: setup
	@crates/lab/measure/measure.py $(if $(ONLY),--only $(ONLY)) $(if $(RESUME),--resume)

# The studies drive real programs: nothing else should run. One that misses its targets does not stop
# the next study.
study: build ros2
	cargo build --release --locked -p tautline-study
	@crates/lab/setup.sh $(STUDY_PACKAGES)
	@crates/lab/ros2.sh zenoh
	-@target/release/tautline-study realtime $(STUDY_OPTIONS)
	-@target/release/tautline-study dds $(STUDY_OPTIONS)
	-@target/release/tautline-study scaling $(STUDY_OPTIONS)
STUDY_PACKAGES = rt-tests stress-ng openssh-server libsensor-msgs-dev
STUDY_OPTIONS = $(if $(filter full,$(STUDY)),--docs $(or $(PAGES),docs),--quick)

# Folder of pages that a study or the restaurant rewrites. Empty: docs for STUDY=full, else none.
PAGES ?=

# Two robots serve six tables.
ORDERS ?= 6
ROBOTS ?= 1+2
TRANSPORTS ?= tautline
DRIVES ?= 1
CONDITIONS ?= idle,cameras,everything
PORT ?= 9090
RESTAURANT = target/release/tautline-restaurant --robots $(ROBOTS) --transports $(TRANSPORTS)
restaurant: build
	cargo build --release --locked -p tautline-restaurant
	@crates/restaurant/setup.sh browser
	@$(RESTAURANT) --orders $(ORDERS) --drives $(DRIVES) --conditions $(CONDITIONS) $(if $(PAGES),--docs $(PAGES))

restaurant-open: build
	cargo build --release --locked -p tautline-restaurant
	@crates/restaurant/setup.sh
	@$(RESTAURANT) --live --port $(PORT)

# --test gives dependencies the same features as in a build of tests, so that they are not built twice.
BUILD_BINS = cargo build --workspace --bins --test realtime --locked

# One test at a time, and nothing else, because these tests measure time.
realtime: setup
	@crates/restaurant/setup.sh browser
	$(BUILD_BINS)
	cargo test --workspace --test it --locked -q -- --exact --test-threads=1 $(TIMED)
	cargo test --workspace --test realtime --locked -- --ignored --nocapture --test-threads=1

smoke: setup
	$(BUILD_BINS)
	@target/debug/tautline-lab smoke

# What subscribers and clients see within one ROS graph and across Tautline, compared.
SEEDS ?= 20
parity: setup ros2
	$(BUILD_BINS)
	@target/debug/tautline-lab parity --seeds $(SEEDS)

# Tools that are not installed are built from crates.io under target/, once.
TOOLS = PATH="$(CURDIR)/target/tools/bin:$$PATH"

# Licences, sources and duplicates of all dependencies, and known vulnerabilities where their
# database is there or can be fetched (github.com/rustsec/advisory-db, below target/advisories).
deny:
	@$(TOOLS) cargo deny --version >/dev/null 2>&1 || cargo install cargo-deny --version $(CARGO_DENY) --locked --debug --no-default-features --root target/tools
	@$(TOOLS) cargo deny --locked check --allow license-exception-not-encountered --allow license-not-encountered licenses sources bans
	@$(TOOLS) cargo deny --locked --config deny.toml --manifest-path fuzz/Cargo.toml check --allow license-exception-not-encountered --allow license-not-encountered licenses sources
	@$(TOOLS) crates/lab/advisories.sh $(NOT_RUN)

# The site of docs/, by Sphinx and MyST from PyPI at pinned versions; a link without a target is an error.
# -E reads all pages again, since Sphinx does not repeat the warnings of a page that it does not read.
DOCS = target/docs-venv
docs: setup
	@cmp -s docs/requirements.txt $(DOCS)/requirements.txt || { \
		/usr/bin/python3 -m venv --clear $(DOCS) && \
		$(DOCS)/bin/pip install --quiet --disable-pip-version-check -r docs/requirements.txt && \
		cp docs/requirements.txt $(DOCS)/; }
	@$(DOCS)/bin/sphinx-build -q -E -n -W --keep-going -c docs -d target/docs-trees . target/docs-site
	@echo '<meta http-equiv="refresh" content="0; url=docs/index.html">' > target/docs-site/index.html
	@echo "make docs: target/docs-site/index.html"

# Fuzzing needs a nightly toolchain: the pinned one where it can be installed, else any.
fuzz:
	@$(TOOLS) fuzz/run.sh $(FUZZ_SECONDS) $(NOT_RUN) $(FUZZ_TARGETS)
