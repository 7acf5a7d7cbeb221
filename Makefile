# Every task of a fresh clone. Needs make and Python 3.11 or newer with pip and venv; all else goes into .venv.

PYTHON ?= python3

# Not ?=: the shell's own ENV, if set, is a file for sh to read and no environment to train on.
ENV = Pong
ALGO = $(if $(filter Pong pong,$(ENV)),pong-fast,ppo)
MINUTES = 10
SEED = 0
ARGS =
# Pong is won by then: the highest score is 21.
STOP = $(if $(filter Pong pong,$(ENV)),--stop-at-return 20 --return-window 30)

# What `make dist` installs before the wheel: otherwise pip takes the newest torch, on Linux with 5 GB of CUDA.
TORCH = $(shell grep ^torch== constraints.txt)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup train test integration reports lint docs dist bench chaos

help:
	@echo 'make train       train an agent, evaluate it and draw its curve: ALGO=$(ALGO) ENV=$(ENV) MINUTES=$(MINUTES)'
	@echo '                 ARGS adds flags: make train ENV=Breakout MINUTES=30 ARGS="--seed 1 --num-envs 32"'
	@echo 'make setup       install Vantage and its tools in $(VENV); the other targets do so on first use'
	@echo 'make test        run the tests, two at a time; ARGS="-k gae" picks some'
	@echo 'make integration run those of whole programs, several processes, learning and the docs'
	@echo 'make reports     run the tests of reported bugs, with the slow trainings that make test leaves out'
	@echo 'make lint        check style (ruff), types (mypy) and the Dockerfile (hadolint)'
	@echo 'make docs        build the documentation site in site/'
	@echo 'make dist        build wheel and sdist in dist/, and try the wheel in an empty environment'
	@echo 'make bench       compare the training speed with Stable-Baselines3 and PFRL, which it installs in $(VENV)'
	@echo 'make chaos       make random faults on small trainings, two at a time, and judge them: MINUTES=30 SEED=$(SEED)'
	@echo 'PYTHON=python3.12 names the interpreter that $(VENV) is made from; now $(PYTHON)'

setup: $(STAMP)
	@echo 'Vantage is in $(VENV): $(BIN)/vantage --help, or . $(BIN)/activate and then vantage --help'

train: $(STAMP)
	@$(BIN)/vantage train $(ALGO) --env $(ENV) --max-minutes $(MINUTES) $(STOP) --report $(ARGS)

test: $(STAMP)
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

integration: $(STAMP)
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m 'integration and not slow' $(ARGS)

reports: $(STAMP)
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m '' tests/reports $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/hadolint Dockerfile

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo 'The site is in site/: open site/index.html'

dist: $(STAMP)
	@rm -rf dist
	@$(BIN)/python -m build --quiet
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python tests/wheel.py dist/*.whl --torch $(TORCH)

bench: $(STAMP)
	@$(PIP_INSTALL) --quiet --editable '.[bench]'
	@$(BIN)/python benchmarks/throughput.py $(ARGS)

chaos: $(STAMP)
	@$(BIN)/python tests/faults/chaos.py --minutes $(MINUTES) --seed $(SEED) $(ARGS)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys' || { \
	  echo 'make: "$(PYTHON)" does not run; Vantage needs Python 3.11 or newer. Name one: make setup PYTHON=python3.12' >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Vantage needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	    "Name another: make setup PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo 'make: "$(PYTHON)" comes without venv; on Debian and Ubuntu: apt-get install python3-venv' >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $@
