# SPDX-License-Identifier: Apache-2.0
# Everything a newcomer does with this repository. `make demo` and `make test` need nothing beforehand but make.
.DEFAULT_GOAL := help
.PHONY: help setup demo tutorial clean-tutorial clean-demo test test-quick test-long test-changed test-other-debian test-network test-moves test-boot \
	test-guest fuzz kill-test test-kill-points fail-test storm lint docs pictures site man bench bench-guard release test-release release-notes lock \
	clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing: Debian packages and .venv
	@bash scripts/setup test

demo: ## Install what is missing, boot an emulated GPU host, create two tenants' VMs on it and show them
	@bash scripts/setup demo
	@bash scripts/demo

tutorial: ## Start twelve simulated hosts for docs/tutorial.md, in seconds
	@bash scripts/setup demo
	@.venv/bin/vgpuctl lab tutorial tutorial

clean-tutorial: ## Take the tutorial's hosts and files away
	@if [ -d tutorial/.lab ]; then .venv/bin/vgpuctl lab --folder tutorial/.lab down; fi
	@rm -rf tutorial

clean-demo: ## Take the demo's VMs, host and files away
	@bash scripts/clean-demo

test: ## Run all tests but the long ones, as CI does; needs root or sudo (24 minutes)
	@bash scripts/setup test
	@bash scripts/test

test-quick: ## Run the tests that need no emulated host (21 minutes)
	@bash scripts/setup test
	@bash scripts/test -m "not kernel_lab"

test-long: ## Run the tests that are too long for `make test`; each has a shorter one there (40 minutes beside other work)
	@bash scripts/setup test
	@bash scripts/test --long

test-changed: ## Run the tests that a change can break: what is not committed, or BASE=main~3 (5 minutes, or MINUTES=10)
	@bash scripts/setup test
	@.venv/bin/python -m tests.changed --base "$(BASE)" --minutes "$(or $(MINUTES),5)"

test-other-debian: ## Run the demo and the quick tests on the other release of Debian, 12 or 13, in a root of its own; needs root (15 minutes more than `make test-quick`, 10 the second time)
	@bash scripts/setup other-debian
	@scripts/other-debian

test-network: ## Prove tenants' networks with packets between two emulated hosts (10 minutes, nothing beside it)
	@bash scripts/setup test
	@.venv/bin/python -m pytest -v tests/network/hosts_proof.py

test-moves: ## Prove that VMs move with their vGPUs between two emulated hosts with QEMU 10, and that no failure in between loses one; ROUNDS=10 repeats the moves, PAIRS=10 the comparison with the check (80 minutes; on Debian 12 in a root of Debian 13, which needs root, and 10 minutes more the first time)
	@if grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then \
		bash scripts/setup other-debian && scripts/other-debian make test-moves "ROUNDS=$(ROUNDS)" "PAIRS=$(PAIRS)"; \
	else \
		bash scripts/setup test && ROUNDS=$(ROUNDS) PAIRS=$(PAIRS) .venv/bin/python -m pytest -v -rP tests/moves/*_proof.py && \
		.venv/bin/python -m tests.proof.moves; \
	fi

test-boot: ## Boot a Debian 13 host with systemd, and a guest with Linux (10 minutes, a download the first time)
	@bash scripts/setup boot
	@.venv/bin/python -m pytest -v --durations=0 tests/boot/debian13_proof.py tests/e2e/vm/linux_guest_proof.py tests/e2e/vm/whole_card_proof.py

test-guest: ## Boot a Debian guest that installs its GPU driver, and read Windows seeds (10 minutes, a download once)
	@bash scripts/setup guest
	@.venv/bin/python -m pytest -v --durations=0 tests/boot/guest_driver_proof.py tests/boot/cloudbase_proof.py

fuzz: ## Damaged text for every reader and hostile output for terminals, 100,000 cases each (10 minutes)
	@bash scripts/setup test
	@.venv/bin/python -m tests.proof.fuzz --cases 100000
	@.venv/bin/python -m tests.proof.terminals --strings 100000

kill-test: ## Kill and interrupt commands at random; nothing may leak, see docs/reliability.md (an hour)
	@bash scripts/setup test
	@.venv/bin/python -m tests.proof.kill_test --minutes 60

test-kill-points: ## Kill the tests' commands after every side effect, not after one of each kind (11 minutes beside a `make test`)
	@bash scripts/setup test
	@for long in "" --long; do \
		VGPUCTL_TESTS_ALL_KILL_POINTS=1 bash scripts/test $$long --timeout 3600 -m "not kernel_lab" \
			$$(grep -rlE 'kill_points|paired_points' tests/e2e --include='test_*.py') || exit 1; \
	done

fail-test: ## Let hosts fail after the side effects of every command; nothing may leak (2 hours)
	@bash scripts/setup test
	@.venv/bin/python -m tests.proof.failing_hosts --fault reboot
	@.venv/bin/python -m tests.proof.failing_hosts --fault libvirtd --fault libvirtd-restart --fault network --points 2
	@.venv/bin/python -m tests.proof.failing_hosts --without-units --fault reboot --fault network --points 2 --only stop-vm --only start-vm --only repair

storm: ## Eight operators at once, on SQLite and PostgreSQL, beside servers and a hostile role; nothing may be granted twice (15 minutes)
	@bash scripts/setup test
	@.venv/bin/python -m tests.proof.storm --rounds 6 --commands 8

lint: ## Style, types and import floors only
	@bash scripts/setup test
	@bash scripts/test tests/test_linters.py

docs: ## Write the generated pages under docs/ again
	@.venv/bin/python scripts/generate_docs.py

pictures: ## Take the pictures of docs/images again: 40 simulated hosts, their pages and a map (2 minutes)
	@bash scripts/setup test
	@.venv/bin/python -m tests.pictures
	@ls -s docs/images

site: ## Build the documentation as a web site in build/site, without a network
	@bash scripts/setup test
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo build/site/index.html

man: ## Write the manual pages to build/man
	@.venv/bin/python scripts/man_pages.py build/man
	@echo build/man

bench: ## Measure start, create-vm and fan-out; docs/performance.md has the other benches
	@bash scripts/setup test
	@.venv/bin/python -m tests.bench.cli_start
	@.venv/bin/python -m tests.bench.create_vm
	@.venv/bin/python -m tests.bench.fan_out --hosts 10 --without ping,setup

bench-guard: ## Say what takes a tenth more processor time than at the commit that docs/performance.md names (half an hour)
	@bash scripts/setup test
	@.venv/bin/python -m tests.bench.guard

release: ## Build wheels, sdists, the Debian package, SBOM and licences into dist/ (docs/releases.md)
	@bash scripts/setup release
	@bash scripts/release

test-release: release ## Install what `make release` built in clean roots, boot it, upgrade a store (10 minutes)
	@.venv/bin/python -m pytest -v --durations=0 tests/release/reproducible_proof.py tests/release/debian_package_proof.py tests/release/upgrade_proof.py

release-notes: ## Name the release in CHANGELOG.md and gather docs/changes/ for it (docs/releases.md)
	@bash scripts/setup release
	@.venv/bin/python scripts/release_notes.py

lock: ## Choose the versions of the libraries in the Debian package again (packaging/requirements.txt)
	@bash scripts/setup release
	@.venv/bin/pip-compile --quiet --upgrade --allow-unsafe --strip-extras --generate-hashes --no-header \
		--extra clusters --extra monitoring --extra ovn --extra postgresql \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file packaging/requirements.txt pyproject.toml

clean: ## Remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
