#!/usr/bin/env bash
# Formatting, clang-tidy, ruff and pyright; the first complaint of each ends in status 1 after all have run.
#   tools/lint.sh             clang-tidy over the folders that need no torch (minutes)
#   tools/lint.sh quick       without clang-tidy (what CI runs)
#   tools/lint.sh all         over every source, tests and those with torch's headers included (long)
#   tools/lint.sh COMMIT      over the sources that differ from that commit
# Needs a configured build (compile_commands.json in build).
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-torch-free}
jobs=${JOBS:-$(nproc)}
status=0

begin() { echo "lint: $1"; started=$SECONDS; }
end() { # STATUS NAME
  echo "lint: $2 $([ "$1" -eq 0 ] && echo clean || echo FAILED), $((SECONDS - started)) s"
  [ "$1" -eq 0 ] || status=1
}

# The sources in the database that clang-tidy is to read: absolute paths, as run-clang-tidy matches them.
tidy_sources() {
  case "$what" in
    all) git ls-files 'regen/*.cpp' 'cli/*.cpp' 'python/*.cpp' 'tests/*.cpp' ;;
    torch-free) git ls-files 'regen/*.cpp' | grep -v -E '^regen/(execute|session)/' ;;
    *) git diff --name-only --diff-filter=d "$what" -- 'regen/*.cpp' 'cli/*.cpp' 'python/*.cpp' 'tests/*.cpp' ;;
  esac | grep -v '^tests/consumer/' | sed "s|^|$PWD/|"
}

begin clang-format
git ls-files '*.h' '*.cpp' | xargs clang-format-14 --dry-run -Werror
end $? clang-format

if [ "$what" != quick ]; then
begin "clang-tidy ($what)"
sources=$(tidy_sources)
if [ -n "$sources" ]; then
  # A name twice in the database (a source of two targets) is read twice; the flags of g++ that clang lacks are ignored.
  # shellcheck disable=SC2086
  run-clang-tidy-14 -quiet -p build -j "$jobs" -extra-arg=-Wno-unknown-warning-option $sources > build/clang-tidy.log 2>&1
  tidy=$?
  grep -E -A4 '(error|warning): .*\[[a-z]' build/clang-tidy.log
else
  tidy=0
fi
end $tidy clang-tidy
fi

begin ruff
.venv/bin/ruff check -q .
end $? ruff

begin pyright
PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/pyright
end $? pyright
exit $status
