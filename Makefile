# `make run` and `make test` set up everything they need in .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run on every core; JUNIT etc. can be added: make test PYTEST_ARGS="-k planners"
PYTEST_ARGS ?=
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal --durations 15
# Tests start hundreds of processes: without its bytecode on disk each of them compiles the package anew, for a second
unexport PYTHONDONTWRITEBYTECODE

# What `make quick` runs: needs neither TVM, Vela nor a C compiler.
QUICK := tests/test_architecture.py tests/test_options.py \
    $(addprefix tests/planners/test_,problem.py problem_rows.py spans.py verify.py) \
    $(addprefix tests/ethosu/test_,featuremap.py fields.py inplace.py overlap.py runs.py stream_coding.py waits.py webs.py) \
    $(addprefix tests/npu_model/test_npu_,arithmetic.py layout.py) \
    $(addprefix tests/corstone/test_,board_data.py npu_registers.py)
COVERED := tests/planners/test_problem.py tests/planners/test_verify.py tests/planners/test_last_writers.py

# names-of-quick: for .ci/try-release
.PHONY: run test test-all covered packages quick mutations names-of-quick release lint setup clean

run: $(VENV)/.run-ready
	$(BIN)/npu-memplan compile examples/digits/digits.tflite --accelerator ethos-u55-256 \
	    --memory-mode Shared_Sram -o build/digits --force
	$(BIN)/npu-memplan run build/digits --on local --input random:7 --reference examples/digits/digits.tflite

# What a change is tried with; tests/support/slow_tests.py says what it leaves out
test: packages $(VENV)/.test-ready lint covered
	$(PYTEST) --fast $(addprefix --ignore=,$(COVERED)) $(PYTEST_ARGS)

# Everything; CI runs it
test-all: packages $(VENV)/.test-ready lint covered
	$(PYTEST) $(addprefix --ignore=,$(COVERED)) $(PYTEST_ARGS)

packages:
	.ci/setup

covered: $(VENV)/.test-ready
	$(BIN)/python -m pytest -q $(COVERED) \
	    --cov=npu_memplan.problem.model --cov=npu_memplan.problem.validation --cov=npu_memplan.verify --cov-branch --cov-fail-under=100 --cov-report=term

quick: $(VENV)/.test-ready lint
	$(BIN)/python -m pytest -q -n auto -k "not real_stream" $(QUICK)

# dist/: the wheel, the sdist and what pip installs with the wheel (CycloneDX); both are tried on each of PYTHONS
PYTHONS ?= $(PYTHON)
release: $(VENV)/.test-ready
	rm -rf dist build/release
	$(BIN)/python -m hatchling build -d dist
	$(PYTHON) -m venv build/release/venv
	build/release/venv/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	$(PYTHON) -m venv build/release/tools
	build/release/tools/bin/pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'
	build/release/tools/bin/cyclonedx-py environment build/release/venv --pyproject pyproject.toml --of JSON --output-reproducible -o dist/sbom.cdx.json
	.ci/try-release $(PYTHONS)

# Ten faults in the package that the tests of `make test` find
mutations: $(VENV)/.test-ready
	$(BIN)/python -m tests.mutations

names-of-quick:
	@echo $(QUICK)

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.test-ready

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[reference]'
	touch $@

$(VENV)/.test-ready: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps 'mlia-ethos-u==0.1.0'  # for Arm's programs; its dependencies hold rich back
	$(PYTHON) -m venv $(VENV)/tosa-tools  # of its own: it wants an older numpy and flatbuffers than the rest
	$(VENV)/tosa-tools/bin/pip install --quiet --disable-pip-version-check 'tosa-tools==2026.8.*'
	touch $@ $(VENV)/.run-ready

clean:
	rm -rf build dist $(VENV)
