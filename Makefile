# The short way in: `make demo` and `make test` do everything on a fresh machine.
#   make              build           make bench      measure speed
#   make demo         the main job    make fuzz       SECONDS=n for each target
#   make test         all tests       make format     clang-format over the sources
#   make test SANITIZE=1              the C++ tests with address and undefined sanitizers
#   make test-tsan    the threads of base, share and background search, with the thread sanitizer
#   make lint         clang-format, ruff, pyright, clang-tidy; SINCE=COMMIT: clang-tidy reads what changed, QUICK=1 leaves it out
#   make clean        remove builds   make results    measure the rows of docs/results.md
#   make docs         the documents as a site with a search, in build/site; no server and no network are needed to read it
#   make experiments  published tables and figures, ours beside theirs (docs/explanation/published.md); one by
#                     one: experiment-fig4, -fig5, -gap, -gaps, -rounding, -lower-sets, -monet, -str, -auto, -against,
#                     -switchflow-fig2, -fig3, -fig6 to -fig10, -switchflow-table1; ARGS=... for the script

PRESET   := $(if $(SANITIZE),sanitize,release)
BUILD    := $(if $(SANITIZE),build-sanitize,build)
SECONDS  ?= 60
PYTHON   := .venv/bin/python
JOBS     ?= $(shell nproc)

.PHONY: all setup configure build program runtime test-readers test-tsan demo test bench fuzz lint format clean results docs experiments

all: build

setup:
	@tools/setup.sh

configure: setup
	@cmake --preset $(PRESET) > $(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@mv $(BUILD).configure.log $(BUILD)/configure.log

build: configure
	@cmake --build --preset $(PRESET) -j $(JOBS)

# The tour and the experiments need the program only, not the tests.
program: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target regen

# The runtime for Python, beside its package.
runtime: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target regen regen_runtime_module

demo: runtime
	@$(PYTHON) tools/demo.py
	@$(PYTHON) tools/train_demo.py

experiments: experiment-gap experiment-lower-sets experiment-fig5 experiment-rounding experiment-gaps experiment-fig4 \
             experiment-monet experiment-str experiment-auto experiment-against

# experiment-NAME runs experiments/SCRIPT.py.
SCRIPTS := fig4=checkmate_fig4 fig5=checkmate_fig5 gap=integrality_gap gaps=exact_gaps rounding=rounding lower-sets=lower_sets_table \
           monet=monet_tables str=str_sweeps auto=auto_scale against=auto_against_all
experiment-%: program
	@$(PYTHON) experiments/$(or $(patsubst $*=%,%,$(filter $*=%,$(SCRIPTS))),$(error no experiment is called '$*')).py $(ARGS)

# fig2, fig3, fig6, fig7, fig8, fig9, fig10, table1; ARGS="--device cuda" on a GPU. They run networks, so not in `make experiments`.
experiment-switchflow-%: runtime
	@$(PYTHON) experiments/switchflow_$*.py $(ARGS)

# Everything but the benchmarks, which no test runs. The runtime is not built with sanitizers: torch is not.
TESTED := regen cpp_tests $(if $(SANITIZE),,regen_runtime_module regen-runtime)
test: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target $(TESTED)
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@REGEN_BIN=$(BUILD)/regen $(PYTHON) -m pytest -q -rs -n $(JOBS) --dist loadgroup tests

# What reads files that others wrote, with sanitizers: the part for CI, where minutes count. `make test SANITIZE=1`
# runs everything so.
READERS := base_test graph_test
test-readers: configure
	@cmake --build --preset $(PRESET) -j $(JOBS) --target $(READERS)
	@for test in $(READERS); do $(BUILD)/tests/$$test --gtest_brief=1 || exit 1; done

# What has threads, under the thread sanitizer: base, share and the search in the background. Without the tests that kill
# processes or let calls fail a thousand times: these are about time, of which the sanitizer leaves little.
THREADED := base_test share_test background_search_test
test-tsan: setup
	@cmake --preset tsan > build-tsan.configure.log 2>&1 || { cat build-tsan.configure.log; exit 1; }
	@mv build-tsan.configure.log build-tsan/configure.log
	@cmake --build --preset tsan -j $(JOBS) --target $(THREADED)
	@for test in $(THREADED); do TSAN_OPTIONS="halt_on_error=0 exitcode=66" build-tsan/tests/$$test --gtest_brief=1 --gtest_filter='-*Faults*' || exit 1; done

bench: build
	@build/benchmarks/regen_bench --benchmark_counters_tabular=true

fuzz: setup
	@tools/fuzz.sh $(SECONDS)

docs: program
	@tools/setup.sh docs
	@REGEN_BIN=$(BUILD)/regen $(PYTHON) tools/build_docs.py

results: build
	@$(PYTHON) tools/results.py measure

# Formatting, ruff, pyright, clang-tidy over every source. SINCE=COMMIT: over what changed since; QUICK=1: without clang-tidy.
lint: setup
	@JOBS=$(JOBS) tools/lint.sh $(if $(QUICK),quick,$(SINCE))

format: setup
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 -i

clean:
	@rm -rf build build-debug build-lint build-sanitize build-tsan build-fuzz
