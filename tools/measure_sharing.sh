#!/usr/bin/env bash
# Runs the tests that need a GPU and measures what docs/results.md says of sharing one, each part with a time limit and a log of
# its own: tools/measure_sharing.sh FOLDER [PART...]. Parts are listed below. Build first (tools/build_runtime.sh).
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?"a folder for the logs"}
shift
all="tests preemption latency weights admission state input figures"
parts=${*:-$all}
mkdir -p "$out"
python=${PYTHON:-python3}
export PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH}

# measure NAME SECONDS COMMAND...
measure() {
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  timeout --kill-after=5 "$limit" "$@" > "$out/$name.log" 2>&1
  printf '%-12s exit %3d after %4d s: %s\n' "$name" $? $((SECONDS - begin)) "$*" | tee -a "$out/summary.txt"
}

for part in $parts; do
  case $part in
    tests)
      measure tests 300 "$python" -m pytest -q tests/runtime/share/state_cuda_test.py tests/runtime/step/cuda_test.py \
        tests/runtime/share/feed_cuda_test.py
      measure execute 120 build-gpu/tests/execute_test --gtest_filter='*Cuda*:*Pages*' ;;
    preemption) measure preemption 150 "$python" benchmarks/preempted_training.py --device cuda --batch 64 --preemptions 10000 ;;
    latency)
      measure latency 420 "$python" benchmarks/share_latency.py --device cuda --seconds 3 --only requests preemption
      measure captured 200 "$python" benchmarks/share_latency.py --device cuda --seconds 3 --only requests --cuda-graphs --ways regen regen+mps ;;
    weights) measure weights 180 "$python" benchmarks/share_latency.py --device cuda --seconds 10 --only weights ;;
    admission) measure admission 150 "$python" benchmarks/share_admission.py --device cuda ;;
    state) measure state 120 "$python" benchmarks/state_move.py --device cuda --rounds 8 ;;
    # Few cores that decode: where forking is slow (gVisor) each takes seconds to start.
    input) measure input 300 "$python" benchmarks/shared_input.py --device cuda --cores 6 ;;
    figures)
      for figure in fig2 fig3 fig6 fig7 fig10 table1; do
        measure "$figure" 240 "$python" "experiments/switchflow_$figure.py" --device cuda --out "$out"
      done
      for figure in fig8 fig9; do
        measure "$figure" 360 "$python" "experiments/switchflow_$figure.py" --device cuda --out "$out" --cores 6 --seconds 1
      done ;;
    *) echo "no part is called '$part', expected some of $all" >&2; exit 2 ;;
  esac
done
