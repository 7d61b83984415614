#!/usr/bin/env bash
# Runs every libFuzzer target for the given number of seconds, starting from the corpus in
# tests/fuzz/corpus; new inputs are kept in build-fuzz/corpus, findings in build-fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}

cmake --preset fuzz > /dev/null
targets=()
for source in tests/fuzz/fuzz_*.cpp; do targets+=("$(basename "$source" .cpp)"); done
cmake --build --preset fuzz -j "$(nproc)" --target "${targets[@]}"
mkdir -p build-fuzz/findings
failed=0
for target in "${targets[@]}"; do
  name=${target#fuzz_}
  mkdir -p "build-fuzz/corpus/$name"
  echo "== $target, $seconds s"
  log=build-fuzz/$target.log
  if ! "build-fuzz/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
      -artifact_prefix="build-fuzz/findings/$name-" \
      "build-fuzz/corpus/$name" "tests/fuzz/corpus/$name" > "$log" 2>&1; then
    failed=1
    tail -n 20 "$log"
  fi
  grep -E '^(Done|#[0-9]+.*DONE|stat::)' "$log" | tail -n 1 || true
done
exit $failed
