# `make test` is what CI runs. Everything here works from a fresh clone with Rust, a C
# compiler and make; .ci/run installs on Debian what the tests need beside these.

CARGO ?= cargo
# A test holds this list against crates/tenure/Cargo.toml.
FEATURES := sqlite conformance

.NOTPARALLEL:
.PHONY: help test check fix bench soak deb deb-check format lint docs tests

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

test: format lint docs tests ## everything CI runs, with few rounds: format, lints, docs, tests
	@echo "== all passed"

check: ## the fast part: does it compile, without and with everything
	$(CARGO) check -p tenure --no-default-features
	$(CARGO) check --workspace --all-features --all-targets

fix: ## formats, and mends the lints that can be mended by machine
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-features --all-targets --fix --allow-dirty --allow-staged

soak: ## the same tests with the full counts; ROUNDS=n sets another count
	ROUNDS=$${ROUNDS:-full} $(CARGO) test --workspace --all-features --no-fail-fast

bench: ## measures beside the floor and the peers; fails when a stated ratio is missed
	@# One crate at a time: each is measured with the features that it has by itself.
	$(CARGO) bench -p tenure --all-features --bench embedded
	$(CARGO) bench -p tenure-cli --bench startup

deb: ## the Debian package, with man pages and completions
	CARGO="$(CARGO)" packaging/deb.sh

deb-check: ## installs it into a clean Debian root and tries it there (root, debootstrap, network)
	CARGO="$(CARGO)" packaging/deb-check.sh

format:
	@echo "== format"
	$(CARGO) fmt --all --check

lint:
	@echo "== lint"
	$(CARGO) clippy --workspace --all-features --all-targets -- -D warnings
	$(CARGO) clippy -p tenure --lib --no-default-features -- -D warnings
	@set -e; for feature in $(FEATURES); do \
	  echo "$(CARGO) clippy -p tenure --lib --features $$feature"; \
	  $(CARGO) clippy -p tenure --lib --no-default-features --features $$feature -- -D warnings; \
	done

docs:
	@echo "== docs"
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --all-features --no-deps

tests:
	@echo "== tests"
	$(CARGO) test --workspace --all-features --no-fail-fast
