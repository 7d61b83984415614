#!/usr/bin/env bash
# Runs the tests that need a GPU and measures rows of results/ on one, each part with a time limit and a log of its own:
# tools/measure_gpu.sh FOLDER [PART...]. A group names several parts; without any, `house` and `models` run, in about 25 minutes.
# Builds first unless build-gpu/ is there. COMMIT and MACHINE go into the rows. summary.txt in FOLDER says how each part ended.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?"a folder for the logs"}
shift
house="tests executor steps"                                    # that nothing got worse
models="transformers fine_tuning"                               # what people train, beside eager, checkpointing and torch.compile
sharing="preemption latency weights admission state input figures" # several jobs on the device
mkdir -p "$out"
python=${PYTHON:-python3}
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
machine=${MACHINE:-"NVIDIA H200, 16 cores, torch 2.11, CUDA 13"}
export PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH}

# measure NAME SECONDS COMMAND...
measure() {
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  timeout --kill-after=5 "$limit" "$@" > "$out/$name.log" 2>&1
  printf '%-12s exit %3d after %4d s: %s\n' "$name" $? $((SECONDS - begin)) "$*" | tee -a "$out/summary.txt"
}

transformers_rows() { # NAME SECONDS ARGUMENTS...
  local name=$1 limit=$2
  shift 2
  measure "$name" "$limit" "$python" benchmarks/transformers_steps.py "$@" --csv "$out/transformers.csv" --commit "$commit" --machine "$machine"
}

wanted=()
for part in ${*:-house models}; do
  case $part in
    house | models | sharing) wanted+=(${!part}) ;;
    *) wanted+=("$part") ;;
  esac
done
[ -d build-gpu ] || measure build 400 tools/build_runtime.sh

for part in "${wanted[@]}"; do
  case $part in
    tests)
      # The order counts: what the others leave allocated is in the peak that the first one measures.
      measure tests 420 "$python" -m pytest -q -rs $(find tests -name '*cuda_test.py' -printf '%f %p\n' | sort -r | cut -d ' ' -f 2) ;;
    executor) measure executor 240 build-gpu/tests/execute_test --gtest_brief=1 ;;
    steps)
      for model in resnet50 gpt2_medium unet; do
        measure "step_$model" 240 "$python" benchmarks/h200.py "$model" --shares plain 1 e0.33 --seconds 8
      done ;;
    transformers) transformers_rows transformers 900 llama gpt2 bert vit --budgets none checkpoint 0.7checkpoint --kernels ;;
    fine_tuning) transformers_rows fine_tuning 240 lora --ways eager checkpoint wrap step --budgets checkpoint ;;
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
    *) echo "no part is called '$part', expected house, models, sharing or some of $house $models $sharing" >&2; exit 2 ;;
  esac
done
