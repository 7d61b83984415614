#!/usr/bin/env bash
# Installs what regen needs, by name, and nothing twice: system packages with apt (as root),
# Python packages into .venv. Quick when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build python3-venv nlohmann-json3-dev libcli11-dev libgtest-dev libgmock-dev
          libbenchmark-dev graphviz ccache mold clang-14 clang-format-14 libclang-rt-14-dev)
python_packages=(matplotlib==3.11.2 plotly==7.1.0 pytest==9.2.0)

stamp=.venv/.regen-setup
wanted=$(printf '%s\n' "${packages[@]}" "${python_packages[@]}")
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

# The tools may come from elsewhere than apt; what matters is that they are there.
have() {
  case "$1" in
    g++ | cmake | ccache | mold) command -v "$1" > /dev/null ;;
    ninja-build) command -v ninja > /dev/null ;;
    graphviz) command -v dot > /dev/null ;;
    python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
    *) dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed' ;;
  esac
}

missing=()
for package in "${packages[@]}"; do have "$package" || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "regen set-up: these packages are missing and only root can install them:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  echo "set-up: installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi

if [ ! -x .venv/bin/python ]; then
  echo "set-up: creating .venv"
  python3 -m venv .venv
fi
echo "set-up: installing ${python_packages[*]}"
.venv/bin/python -m pip install --quiet --disable-pip-version-check "${python_packages[@]}"

# Sources built here once go into third_party/ (ignored), each with a stamp of its own; HiGHS
# will be the first.
mkdir -p third_party
printf '%s\n' "$wanted" > "$stamp"
