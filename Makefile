# `make help` lists what there is.  The work is done by the scripts under launch/; this file only says what needs what.

SHELL := /bin/bash
python := .venv/bin/python
stamp := .venv/.installed
hosts := slurm or beowulf
scripts := $(wildcard .ci/run launch/*.sh launch/*.sbatch tests/*/*.sh)

.DEFAULT_GOAL := help
.PHONY: help env demo experiments experiments-sample report cli-reference test test-lasting test-wheel test-browser test-hosts test-hosts-short test-mpi test-simulator check wheel clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(stamp) ## Create .venv with everything that is needed; MPI and Java too, where the machine has none

$(stamp): pyproject.toml launch/setup.sh
	@launch/setup.sh
	@touch $@

demo: env ## Generate a workload, compile it with Spark, match it under mpirun, check the answers
	@launch/demo.sh

# The whole catalogue with a hundredth of the papers' filters; `make experiments scale=1` is the papers' size.
scale := 0.01
experiments: env ## Run the tables and figures of the five papers again, beside what they print
	$(python) -m mpi_match experiment run all --scale $(scale) -o .experiments

# One table or figure of each kind: sweeps with baselines, phases, runs with ranks, moves, threads, parameters, one that is not run.
sample := ccm-table-2 ccm-figure-5 mpi-cuda-table-2 clcb-table-2 clcb-figure-5 farroukh-table-1 farroukh-figure-11 tagmatch-figure-11
experiments-sample: env ## Run some of them with a thousandth of the filters, in less than a minute
	@results=$$(mktemp -d) && trap 'rm -rf "$$results"' EXIT && \
	$(python) -m mpi_match experiment run $(sample) --scale 0.001 --repetitions 1 -o "$$results"

report: env ## Write .experiments/report.html: every experiment that was measured here, beside what the papers print
	@mkdir -p .experiments
	$(python) -m mpi_match report tests/bench/records/*-experiments.jsonl -o .experiments/report.html

cli-reference: env ## Write mpi_match/docs/cli.md, which is what --help says
	$(python) tests/support/cli_reference.py

# Kernels' tests that also pass with warps of several lanes (tests/support/simulated_warps.py).
of_lanes := $(patsubst %,tests/kernels/test_%.py,warps keyed_cuda_tag_sets keyed_cuda_bitmap tidy tagmatch events_on_gpu)

# Tests that start ranks mostly wait, so there are more processes than cores; who does what is in tests/support/schedule.py.
# They start some hundred processes, each of which would compile the sources again where Python may not keep what it compiled.
# The kernels' tests want numba to be imported as the CUDA simulator, so they have processes of their own.  Unit tests of the
# packages of data come first and alone: of them coverage is measured, whose floor is in pyproject.toml; other tests would
# only be slower for it.
covered := $(wildcard $(addprefix tests/unit/,arrays changes events ingest matches storage table test_*.py))
test test-simulator: export PYTHONDONTWRITEBYTECODE =
# All parts also when one fails, so that one run tells everything.
test: env ## Run the tests
	@failed=0; \
	$(python) tests/support/compile_code.py || failed=1; \
	$(python) -m pytest --numprocesses 2 --dist loadfile --cov --cov-report=term:skip-covered $(covered) || failed=1; \
	$(python) -m pytest --numprocesses 4 --dist loadfile --ignore=tests/kernels $(addprefix --ignore=,$(covered)) || failed=1; \
	if [ -d tests/kernels ]; then $(MAKE) --no-print-directory test-simulator || failed=1; fi; \
	exit $$failed

# Tests of properties have more examples there.
test-lasting: export HYPOTHESIS_PROFILE = lasting
test-lasting: env ## Run the tests that take long, which `make test` leaves out (those of hosts are in test-hosts)
	@failed=0; \
	$(python) -m pytest --numprocesses 3 --dist loadfile -m '(lasting or hypothesis) and not ($(hosts))' --ignore=tests/kernels || failed=1; \
	if [ -d tests/kernels ]; then NUMBA_ENABLE_CUDASIM=1 $(python) -m pytest --numprocesses auto -m 'lasting or hypothesis' tests/kernels || failed=1; fi; \
	if [ -d tests/kernels ]; then NUMBA_ENABLE_CUDASIM=1 SIMULATED_LANES=4 $(python) -m pytest --numprocesses auto -m '' $(of_lanes) || failed=1; fi; \
	exit $$failed

# The sdist has the code too, from which pip would build the same wheel.
wheel: env ## Build wheel and sdist with compiled code in them, for processors with AVX2 or AVX-512 and GPUs (some minutes)
	$(python) tests/support/ship_code.py
	rm -rf dist
	$(python) -m build --outdir dist >/dev/null

# pip's cache makes it seconds from the second time on.  The wheel is built from the sdist, in a directory of its own.
test-wheel: env ## Build wheel and sdist, install them away from the tree, run five minutes of the README there
	rm -rf dist
	$(python) -m build --outdir dist >/dev/null
	$(python) -m pytest --numprocesses 2 -m wheel tests/wheel

# What cannot be installed is said, and then again by the test, which fails for it.
test-browser: env ## Look at the HTML report in a headless browser (as root; installs Chromium)
	@command -v chromium >/dev/null || { apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 || true
	$(python) -m pytest -m browser tests/browser

test-mpi: env ## Run the tests that start ranks with MPI=openmpi5, openmpi4 or mpich (wheels)
	@tests/support/with_mpi.sh $(MPI)

# What cannot be installed is said, and then again by the tests, which are skipped for it.
test-hosts: env ## Run the tests on hosts that they make: a Slurm, a Beowulf (as root; installs Slurm and sshd)
	@tests/hosts/install.sh || true
	$(python) -m pytest -m '$(hosts)' tests/hosts

test-hosts-short: hosts = (slurm or beowulf) and not lasting
test-hosts-short: test-hosts

# Warps of several lanes are beside the others: their file is one process's work.
test-simulator: export NUMBA_ENABLE_CUDASIM = 1
test-simulator: env ## Run the kernels' tests under the CUDA simulator (no GPU needed)
	@failed=0; warps=$$(mktemp); \
	SIMULATED_LANES=4 $(python) -m pytest tests/kernels/test_warps.py >$$warps 2>&1 & \
	$(python) -m pytest --numprocesses auto --ignore=tests/kernels/test_warps.py tests/kernels || failed=1; \
	wait $$! || failed=1; \
	cat $$warps; rm $$warps; \
	exit $$failed

# All of them also when one fails, so that one run tells everything.
check: env ## Lint, formatting, types, spelling, shell scripts
	@failed=0; \
	for what in 'ruff check .' 'ruff format --check .' mypy codespell 'shellcheck -x $(scripts)'; do \
		echo "$$what"; .venv/bin/$$what || failed=1; \
	done; \
	exit $$failed

clean: ## Remove everything that make made, the environment too
	rm -rf .venv .demo .experiments build dist mpi_match/compiled *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache spark-warehouse metastore_db
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
