#!/usr/bin/env bash
# Runs every libFuzzer target for the given number of seconds, as many at a time as there are
# cores, starting from the corpus in tests/fuzz/corpus; new inputs are kept in build-fuzz/corpus,
# findings in build-fuzz/findings. Fails if there is a finding.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

cmake --preset fuzz > /dev/null
targets=()
for source in tests/fuzz/fuzz_*.cpp; do targets+=("$(basename "$source" .cpp)"); done
cmake --build --preset fuzz -j "$(nproc)" --target "${targets[@]}"
mkdir -p build-fuzz/findings

fuzz_one() {
  local target=$1 seconds=$2 name=${1#fuzz_}
  mkdir -p "build-fuzz/corpus/$name"
  local log=build-fuzz/$target.log
  if "build-fuzz/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
      -artifact_prefix="build-fuzz/findings/$name-" \
      "build-fuzz/corpus/$name" "tests/fuzz/corpus/$name" > "$log" 2>&1; then
    echo "$target: no finding. $(tail -n 1 "$log")"
  else
    echo "$target: FINDING"
    tail -n 20 "$log"
    return 1
  fi
}
export -f fuzz_one
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz_one {} '"$seconds"
