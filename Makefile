# `make run` and `make test` set up everything they need in .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run on every core; JUNIT etc. can be added: make test PYTEST_ARGS="-k planners"
PYTEST_ARGS ?=

.PHONY: run test lint setup clean

run: $(VENV)/.run-ready
	$(BIN)/npu-memplan compile examples/digits/digits.tflite --accelerator ethos-u55-256 \
	    --memory-mode Shared_Sram -o build/digits --force
	$(BIN)/npu-memplan run build/digits --on host --input random:7 --reference examples/digits/digits.tflite

test: $(VENV)/.test-ready lint
	$(BIN)/python -m pytest -q tests/planners/test_problem.py tests/planners/test_verify.py \
	    --cov=npu_memplan.problem.model --cov=npu_memplan.problem.validation --cov=npu_memplan.verify --cov-branch --cov-fail-under=100 --cov-report=term
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 15 $(PYTEST_ARGS)

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
	$(PYTHON) -m venv $(VENV)/tosa-tools  # of its own: it wants an older numpy and flatbuffers than the rest
	$(VENV)/tosa-tools/bin/pip install --quiet --disable-pip-version-check 'tosa-tools==2026.8.*'
	touch $@ $(VENV)/.run-ready

clean:
	rm -rf build $(VENV)
