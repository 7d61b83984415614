#!/usr/bin/env bash
# Builds the runtime and its tests with the Python at hand, which must have torch, and without the
# network: for a machine with a GPU. third_party/highs must be there (tools/setup.sh builds it).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
cmake -S . -B build-gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DREGEN_PYTHON="$(command -v "$python")" \
  -DREGEN_CLI=OFF -DREGEN_BENCHMARKS=OFF -DREGEN_UNITY=1000 "$@" > build-gpu.log 2>&1 || { tail -n 40 build-gpu.log; exit 1; }
cmake --build build-gpu --target regen_runtime_module execute_test >> build-gpu.log 2>&1 ||
  { grep -E -A5 'error|FAILED' build-gpu.log | head -n 60; exit 1; }
echo "built for torch $("$python" -c 'import torch; print(torch.__version__)')"
