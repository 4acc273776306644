# The commands of this project. `make demo` and `make test` work on a fresh machine: each installs what it needs
# through tests/prepare.
HOST   := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# `ci` is quicker to build; `make test` and the demo use it. Benchmarks and packages are of the release profile.
PROFILE := release
OUT    := target/$(HOST)/$(PROFILE)
# What lies in libexec/bulkhead of an installation, beside `bulkhead` in bin: the roles' programs, and others.
ROLES  := $(shell cat crates/wire/roles.txt) bulkhead-guard datadoor inspector bulkhead-probe libbulkhead-guard.so
DIST   := target/dist/bulkhead-$(HOST)

.PHONY: all build stage dist demo matching db-up breakout test test-stages unit-stage build-stage quick lint unit process protocol cc rootless others sweep kills soak sweep-kernel test-long mutants fuzz fuzz-build fuzz-smoke journey bench bench-check conditioning changes clean

# Where the tests find the programs. Not for all targets: the make that `make test` starts has a profile of its own.
process protocol rootless sweep kills soak sweep-kernel: export BULKHEAD_BIN ?= $(CURDIR)/$(OUT)

all: build

build:
	@./tests/prepare build
	cargo build --profile $(PROFILE) --workspace
	$(MAKE) --no-print-directory -C cc OUT=$(CURDIR)/$(OUT)
	$(MAKE) --no-print-directory -C c OUT=$(CURDIR)/$(OUT)

# What an archive has, to be unpacked anywhere: its programs need nothing of the machine but the kernel. The units lie where
# systemd looks for them if that is /usr/local.
stage: build
	rm -rf $(DIST)
	install -D -t $(DIST)/bin $(OUT)/bulkhead
	cd $(OUT) && for role in $(ROLES); do \
		[ ! -e $$role ] || install -D -t $(CURDIR)/$(DIST)/libexec/bulkhead $$role || exit 1; done
	install -D -m 0644 -t $(DIST)/lib/systemd/system examples/systemd/*.service examples/systemd/*.socket
	install -D -m 0644 -t $(DIST) README.md CHANGELOG.md LICENSE-*
	$(MAKE) --no-print-directory -C c OUT=$(CURDIR)/$(OUT) DESTDIR=$(CURDIR)/$(DIST) PREFIX= install
	cp -r docs $(DIST)/docs

dist: stage
	tar -C $(dir $(DIST)) -czf $(DIST).tar.gz $(notdir $(DIST))
	@echo $(DIST).tar.gz

# Builds, makes a site of this machine's packages, and serves it on http://localhost:8080 until Ctrl-C.
demo:
	@$(MAKE) --no-print-directory PROFILE=ci build
	./examples/demo

# Builds, and serves a site with a database on http://localhost:8080 until Ctrl-C: five services, each with statements of its own.
matching:
	@$(MAKE) --no-print-directory PROFILE=ci build
	./examples/matching/run

# What an attacker who owns a service of the demo gets, as text: from a demo that runs, or from one of its own.
breakout:
	@$(MAKE) --no-print-directory PROFILE=ci build
	./examples/breakout/show

# A PostgreSQL, a MariaDB and a Redis of one's own, each with an empty database, until Ctrl-C; says how a configuration reaches them.
db-up:
	@./tests/prepare databases
	@python3 tests/lib/database_servers.py

# Everything that is tested, in the order of how soon it fails. `process` and `others` wait more than they work, and go side by
# side; the compiler of the fuzz targets only works, and takes the time that they leave. What failed is run once more when none
# of these goes on. Instructions are counted when all else is over: beside it a request takes so long that timers fire in the
# midst of each.
test: export BULKHEAD_SUMMARY = $(CURDIR)/target/summary.txt
test: export BULKHEAD_AGAIN = $(CURDIR)/target/again.jsonl
test: export BULKHEAD_TIMES = $(CURDIR)/target/times.jsonl
test:
	@mkdir -p target && rm -f $(BULKHEAD_SUMMARY) $(BULKHEAD_AGAIN) $(BULKHEAD_TIMES)
	@$(MAKE) --no-print-directory test-stages || { ./tests/summary failed; exit 1; }
	@./tests/summary

test-stages:
	@./tests/stage lint $(MAKE) --no-print-directory PROFILE=ci lint
	@./tests/prepare unit
	@./tests/prepare build
	@$(MAKE) --no-print-directory PROFILE=ci --jobs=2 unit-stage build-stage
	@./tests/prepare process
	@./tests/prepare protocol
	@./tests/prepare fuzz
	@$(MAKE) --no-print-directory PROFILE=ci --jobs=3 process others fuzz-build
	./tests/stage again python3 tests/run --again
	@./tests/stage bench-check $(MAKE) --no-print-directory PROFILE=ci bench-check

# The tests of crates wait for half of their time. The programs are built meanwhile, with what the tests leave of the
# processors.
unit-stage:
	@./tests/stage unit $(MAKE) --no-print-directory --jobs=1 unit

build-stage:
	@./tests/stage build nice -n 10 $(MAKE) --no-print-directory --jobs=1 build

# Format, clippy and unit tests of the crates that have changed, and the process tests whose names mention these crates:
# two minutes after a change in one crate. `tests/quick --list` says what would be run, and why.
quick:
	@./tests/prepare lint
	@./tests/prepare unit
	@./tests/quick

lint:
	@./tests/prepare lint
	cargo fmt --all --check
	./tests/words
	./tests/modules
	./tests/duplicates
	cargo clippy --workspace --all-targets -- -D warnings
	cargo deny --log-level error check bans licenses sources

unit:
	@./tests/prepare unit
	./tests/unit

# The C library, its server and its filters, and the library that is preloaded into guarded servers.
cc: build
	@./tests/prepare process
	./tests/stage cc $(MAKE) --no-print-directory -C cc OUT=$(CURDIR)/$(OUT) check

# Real processes, started as a user would; as root they have their own uids, and are tried from inside and attacked.
process: build
	@./tests/prepare process
	./tests/stage process python3 tests/run -n 4

# curl, openssl, nghttp, h2load, h2spec, testssl.sh and Chromium against the server, and request smuggling probes.
protocol: build
	@./tests/prepare protocol
	./tests/stage protocol python3 tests/run --protocol

rootless: build
	@./tests/prepare process
	./tests/stage rootless python3 tests/run -n 3 --rootless

# The fuzz targets are compiled from the beginning on, with what the tests leave of the processors. `fuzz-smoke` runs them,
# and waits for the compiler if need be.
fuzz-build:
	@./tests/prepare fuzz
	@./tests/stage fuzz-build nice -n 19 env -u MAKEFLAGS ./fuzz/run --smoke --build

# What goes on beside `process`, one after the other.
others:
	@$(MAKE) --no-print-directory --jobs=1 cc protocol rootless
	@./tests/stage fuzz-smoke nice -n 19 $(MAKE) --no-print-directory --jobs=1 fuzz-smoke

# Every value of every argument that a policy of system calls might look at, from inside each kind of process; a reload or an
# upgrade that fails, or whose launcher is killed, at each of its system calls; every kind of descriptor on every channel; every
# kind of rule by every spelling of names; names of paths that change all the time; 600 sites on demand in 150 MiB, and 600 always-on ones; limits
# below, at and above the need.
sweep: build
	@./tests/prepare process
	cargo test -p probe --test allowed
	python3 tests/run test_sweep
	python3 tests/run --rootless test_sweep
	BULKHEAD_SWEEP=whole python3 tests/run test_reload_injection test_upgrade_injection test_refused test_upgrade_half
	BULKHEAD_SWEEP=whole python3 tests/run test_sent_descriptors
	BULKHEAD_SWEEP=whole python3 tests/run --rootless test_sent_descriptors
	BULKHEAD_STOPPED=5,40,70 python3 tests/run test_hung_roles
	BULKHEAD_STOPPED=5,40,70 python3 tests/run --rootless test_hung_roles
	BULKHEAD_RULES_CASES=20000 python3 tests/run test_rule_names
	BULKHEAD_RACES=200000 cargo test -p config paths::sweep
	BULKHEAD_SQLITE_CASES=200 cargo test -p dataproxy --test sqlite_time -- --nocapture 2> target/sqlite_time.log || { grep -A 1 panicked target/sqlite_time.log; exit 1; }
	BULKHEAD_MEMORY_SECONDS=180 python3 tests/run test_memory
	BULKHEAD_SWEEP=whole python3 tests/run test_room
	BULKHEAD_SWEEP=whole python3 tests/run --rootless test_room

# Each role killed fifty times at random moments, and a hundred reloads, under load.
kills: build
	@./tests/prepare process
	BULKHEAD_KILLS=50 python3 tests/run test_kills
	BULKHEAD_RELOADS=100 python3 tests/run test_changes_under_load

# The long forms, and a note of each in docs/internals/testing.md; hours. LONG="soak kills" runs those two.
test-long:
	@./tests/long $(LONG)

# Reloads every five seconds for twenty minutes, under load: nothing that is counted in any process may grow.
soak: build
	@./tests/prepare process
	BULKHEAD_SOAK=1200 python3 tests/run test_soak

# The tests of jails under another kernel, Debian's, in an emulator: needs root and qemu-system-x86.
sweep-kernel: build
	@./tests/prepare process
	./tests/isolation/emulator/run test_inside test_foreign test_sweep

# Changes to the code that no test notices, of each SAMPLE-th place; CRATE="request wire" for some crates only.
mutants:
	@./tests/prepare mutants
	./tests/mutants --sample $(or $(SAMPLE),8) $(CRATE)

# Every parser of untrusted bytes; SECONDS_EACH=600 for a long run.
fuzz:
	@./tests/prepare fuzz
	./fuzz/run
	$(MAKE) --no-print-directory -C cc OUT=$(CURDIR)/$(OUT) fuzz
	$(MAKE) --no-print-directory -C c OUT=$(CURDIR)/$(OUT) fuzz

# The same for about a second each.
fuzz-smoke:
	@./tests/prepare fuzz
	./fuzz/run --smoke
	$(MAKE) --no-print-directory -C cc OUT=$(CURDIR)/$(OUT) SECONDS_EACH=2 fuzz
	$(MAKE) --no-print-directory -C c OUT=$(CURDIR)/$(OUT) SECONDS_EACH=2 fuzz

# The cookbook's recipes, followed from an empty Debian with the archive of `dist`: needs root and the network.
journey:
	@./tests/prepare journey
	@$(MAKE) --no-print-directory PROFILE=ci dist
	./tests/journey $(CURDIR)/$(DIST).tar.gz

# Every path beside nginx, h2o, HAProxy, Apache and bare programs, interleaved in one run (20 minutes); writes
# bench/results.json and docs/performance.md. CASE="h2-*,upstream-keep" measures those rows and writes nothing;
# BENCH=--quick (or another option of bench/run) goes with both.
bench: build
	@./tests/prepare bench
	cargo build --release --quiet --manifest-path bench/axum/Cargo.toml --target-dir target/bench
	python3 bench/run --bulkhead $(OUT) $(if $(CASE),--case '$(CASE)') $(BENCH)

# Counts the instructions of the paths that are taken most often, and compares them with bench/instructions.json, whose
# figures are of the profile of the tests. CASE="service upstream" counts those. It takes two minutes.
bench-check:
	@./tests/prepare bench-check
	cargo build --profile ci --workspace
	./bench/check $(CASE)

# Attacks on loopback, on ours and on Apache and nginx with and without a guard; writes bench/CONDITIONING.md.
conditioning: build
	@./tests/prepare conditioning
	cargo build --release --quiet -p conditioning --example tree
	python3 bench/conditioning/run

# What clients lose when the configuration changes: ours, and nginx and Caddy where they are installed. Needs root.
changes: build
	@./tests/prepare bench
	python3 bench/changes/run --bulkhead $(OUT) --json target/changes.json

clean:
	cargo clean
	rm -rf demo
