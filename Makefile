# SPDX-License-Identifier: Apache-2.0
# Two commands to know: make demo, make test.

export PATH := $(HOME)/.cargo/bin:$(PATH)

# make demo ROS=2 LINK=radio; make bench CASE=3mbps RUNS=3
ROS ?= 1
LINK ?= token-bucket
CASE ?= all
# Empty: 1; 10 of recovery.
RUNS ?=
FUZZ_SECONDS ?= 30

.PHONY: help setup ros2 build demo test bench validate smoke realtime fuzz

help:
	@echo "make demo    Tautline beside plain ROS 1 on a 6 Mbps link (under three minutes after the build);"
	@echo "             LINK=token-bucket|radio: full duplex by the kernel, or a half-duplex 802.11 channel;"
	@echo "             ROS=2: rclpy beside plain ROS 2 (Fast DDS), installed into target/ros2"
	@echo "make test    format, lints, unit tests, real ROS at both ends, fuzzing"
	@echo "make bench   all measured cases; CASE=6mbps|6mbps-rate|3mbps|3mbps-rate|6mbps-loss|6mbps-radio|idle|header|five-peers|recovery|crypto|flood|ros2-gateway, RUNS=n, ROS=2"
	@echo "make validate  the radio model against a reference, against real programs, and its speed; rate control (docs/rates.md)"
	@echo "make build   the release binaries: target/release/tautline and tautline-lab"
	@echo "make setup   installs the Debian packages that are missing (the others do it too)"

setup:
	@crates/lab/setup.sh

# Debian's DDS is of the age of Humble, for which there are no wheels.
ros2:
	@crates/lab/setup.sh cyclonedds-tools cyclonedds-dev libfastrtps-dev
	@crates/lab/ros2.sh

build: setup
	cargo build --release --locked -p tautline-node -p tautline-lab

demo: build
	@[ "$(ROS)" != 2 ] || crates/lab/ros2.sh kilted
	@target/release/tautline-lab demo --ros $(ROS) --link $(LINK)

bench: build
	@[ "$(ROS)" != 2 -a "$(CASE)" != ros2-gateway ] || crates/lab/ros2.sh kilted
	@target/release/tautline-lab bench $(CASE) --ros $(ROS) $(if $(RUNS),--runs $(RUNS))

test: setup ros2
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked
	@$(MAKE) --no-print-directory smoke realtime fuzz

validate: build
	@target/release/tautline-lab validate dcf --docs docs
	@target/release/tautline-lab validate speed
	@target/release/tautline-lab validate air
	@target/release/tautline-lab validate relays
	@target/release/tautline-lab validate rates --docs docs

# One test at a time, and nothing beside it: these look at the clock.
realtime: setup
	cargo test --workspace --test realtime --locked -- --ignored --nocapture --test-threads=1

smoke: setup
	cargo build --workspace --bins --locked
	@target/debug/tautline-lab smoke

# Fuzzing needs a nightly toolchain; cargo-fuzz is installed under target/ where it is missing.
FUZZ = PATH="$(CURDIR)/target/tools/bin:$$PATH" cargo +nightly fuzz
fuzz:
	@if ! cargo +nightly --version >/dev/null 2>&1; then \
		echo "fuzz: not run, no nightly toolchain (rustup toolchain install nightly)"; exit 0; fi; \
	set -e; \
	$(FUZZ) --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --root target/tools; \
	for target in packet_parse control_parse endpoint_packets handshake; do \
		echo "fuzz: $$target for $(FUZZ_SECONDS) s"; \
		mkdir -p target/fuzz/corpus/$$target; \
		$(FUZZ) run --fuzz-dir fuzz --target-dir target/fuzz $$target target/fuzz/corpus/$$target fuzz/seeds/$$target \
			-- -max_total_time=$(FUZZ_SECONDS) -verbosity=0 -print_final_stats=1; done
