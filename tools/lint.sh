#!/usr/bin/env bash
# Formatting, clang-tidy, ruff and pyright; the first complaint of each ends in status 1 after all have run.
#   tools/lint.sh             clang-tidy over every source (what CI runs)
#   tools/lint.sh quick       without clang-tidy
#   tools/lint.sh COMMIT      clang-tidy over the sources that differ from that commit
# Needs the set-up.
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
jobs=${JOBS:-$(nproc)}
status=0

# check NAME COMMAND..: runs it and says how it ended.
check() {
  local name=$1 begin=$SECONDS
  shift
  if "$@"; then
    echo "lint: $name clean, $((SECONDS - begin)) s"
  else
    echo "lint: $name FAILED, $((SECONDS - begin)) s"
    status=1
  fi
}

formatted() { git ls-files '*.h' '*.cpp' | xargs clang-format-14 --dry-run -Werror; }
# Configures a build that is never built: it lists each source by itself, where the others list unities.
tidy() {
  cmake --preset lint > build-lint.log 2>&1 || { cat build-lint.log; return 1; }
  mv build-lint.log build-lint/configure.log
  case "$what" in
    all) .venv/bin/python tools/tidy.py --jobs "$jobs" ;;
    *) .venv/bin/python tools/tidy.py --jobs "$jobs" --since "$what" ;;
  esac
}

check clang-format formatted
check ruff .venv/bin/ruff check -q .
check pyright env PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/pyright
[ "$what" = quick ] || check clang-tidy tidy
exit $status
