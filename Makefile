# The short way in: `make demo` and `make test` do everything on a fresh machine.
#   make              build           make bench      measure speed
#   make demo         the main job    make fuzz       SECONDS=n for each target
#   make test         all tests       make format     clang-format over the sources
#   make test SANITIZE=1              the C++ tests with address and undefined sanitizers
#   make clean        remove builds   make results    measure the rows of docs/results.md

PRESET   := $(if $(SANITIZE),sanitize,release)
BUILD    := $(if $(SANITIZE),build-sanitize,build)
SECONDS  ?= 60
PYTHON   := .venv/bin/python
JOBS     ?= $(shell nproc)

.PHONY: all setup configure build demo test bench fuzz format clean results

all: build

setup:
	@tools/setup.sh

configure: setup
	@cmake --preset $(PRESET) > $(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@mv $(BUILD).configure.log $(BUILD)/configure.log

build: configure
	@cmake --build --preset $(PRESET) -j $(JOBS)

# The tour needs the program only, not the tests.
demo: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target regen
	@$(PYTHON) tools/demo.py

test: build
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@REGEN_BIN=$(BUILD)/regen $(PYTHON) -m pytest -q tests

bench: build
	@build/benchmarks/regen_bench --benchmark_counters_tabular=true

fuzz: setup
	@tools/fuzz.sh $(SECONDS)

results: build
	@$(PYTHON) tools/results.py

format: setup
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 -i

clean:
	@rm -rf build build-debug build-sanitize build-fuzz
