#!/usr/bin/env bash
# Installs what regen needs, by name, and nothing twice: system packages with apt (as root),
# Python packages into .venv, HiGHS from its sources into third_party. Quick when nothing changed.
# `tools/setup.sh highs` builds HiGHS only, with the pip of $PYTHON, for builds that have the rest.
# `tools/setup.sh docs` installs what makes the site of the documents as well, which nothing else needs.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build python3-venv python3-dev nlohmann-json3-dev libcli11-dev libasio-dev libgtest-dev libgmock-dev
          libbenchmark-dev graphviz ccache mold clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev chromium fonts-dejavu-core)
python_packages=(matplotlib==3.11.2 plotly==7.1.0 pytest==9.2.0 pytest-xdist==3.8.0 torch==2.13.0 transformers==5.17.0 accelerate==1.15.0 peft==0.21.2 trl==1.16.0
                 diffusers==0.42.1 lightning==2.6.6 ruff==0.17.5 'pyright[nodejs]==1.1.414' axe-core-python==0.1.0)
docs_packages=(sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19)

stamp=.venv/.regen-setup
wanted=$(printf '%s\n' "${packages[@]}" "${python_packages[@]}")
docs_stamp=.venv/.regen-docs
docs_wanted=$(printf '%s\n' "${docs_packages[@]}")
highs_version=1.15.1
highs_sha256=20ed2fbf1cb64bf3044ee6632364b7e2653d93e6901e2b19fd3d5df10702e8c5
highs_stamp=third_party/highs/.regen-$highs_version
only_highs() { [ "$task" = highs ]; }
task=${1:-all}
python=.venv/bin/python
if only_highs; then python=${PYTHON:-python3}; fi
packages_ready() { [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; }
docs_ready() { [ "$task" != docs ] || [ "$(cat "$docs_stamp" 2>/dev/null)" = "$docs_wanted" ]; }
if ! only_highs && packages_ready && docs_ready && [ -e "$highs_stamp" ]; then exit 0; fi

# The tools may come from elsewhere than apt; what matters is that they are there.
have() {
  case "$1" in
    g++ | cmake | ccache | mold) command -v "$1" > /dev/null ;;
    ninja-build) command -v ninja > /dev/null ;;
    graphviz) command -v dot > /dev/null ;;
    chromium) command -v chromium > /dev/null || command -v google-chrome > /dev/null ;;
    python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
    *) dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed' ;;
  esac
}

# A lock has the version of each package that the named ones need, and the hash of its file on one platform; pip refuses
# files with other hashes. torch has a build for each kind of device and therefore no hash.
# install_locked LOCK PACKAGE..
install_locked() {
  local lock=$1
  shift
  local pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
  local torch_free=.venv/.regen-lock
  if [ "$(.venv/bin/python -c 'import platform, sys; print(sys.version_info[:2] == (3, 11), sys.platform, platform.machine())')" = "True linux x86_64" ]; then
    grep -v '^torch==' "$lock" > "$torch_free"
    "${pip[@]}" --require-hashes --no-deps -r "$torch_free"
  else
    echo "set-up: $lock has no hashes for this platform; its versions are installed"
    sed -n 's/^\([a-z][^ ]*\).*/\1/p' "$lock" | grep -v '^torch==' > "$torch_free"
    "${pip[@]}" --no-deps -r "$torch_free"
  fi
  rm "$torch_free"
  "${pip[@]}" "$@"
}

install_packages() {
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
  install_locked tools/python.lock "${python_packages[@]}"

  # `import regen` in any script that .venv runs means the package of this tree, also in its root, where the folder
  # regen/ would be taken for a package. The path is relative to the folder of packages.
  for site in .venv/lib/python3*/site-packages; do echo ../../../../python > "$site/regen-checkout.pth"; done

  printf '%s\n' "$wanted" > "$stamp"
}

install_docs() {
  echo "set-up: installing ${docs_packages[*]}"
  install_locked tools/docs.lock "${docs_packages[@]}"
  printf '%s\n' "$docs_wanted" > "$docs_stamp"
}

# HiGHS has no package with headers; the source archive of its Python package is the whole library
# without two files that its build looks for.
build_highs() {
  echo "set-up: building HiGHS $highs_version into third_party (once, two minutes on two cores)"
  rm -rf third_party/highs third_party/highs-work
  mkdir -p third_party/highs-work/source
  # -I: from inside a build by pip, the packages of the environment itself.
  "$python" -I -m pip download --quiet --disable-pip-version-check --no-deps --no-binary highspy \
    --dest third_party/highs-work "highspy==$highs_version"
  echo "$highs_sha256  third_party/highs-work/highspy-$highs_version.tar.gz" | sha256sum --check --quiet ||
    { echo "set-up: the archive of HiGHS is not the one expected, sha256 $highs_sha256" >&2; exit 1; }
  tar xzf "third_party/highs-work/highspy-$highs_version.tar.gz" -C third_party/highs-work/source --strip-components=1
  mkdir -p third_party/highs-work/source/app
  touch third_party/highs-work/source/app/CMakeLists.txt
  printf 'Name: highs\nVersion: %s\n' "$highs_version" > third_party/highs-work/source/highs.pc.in
  cmake -S third_party/highs-work/source -B third_party/highs-work/build -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DBUILD_CXX_EXE=OFF -DBUILD_EXAMPLES=OFF -DBUILD_TESTING=OFF -DZLIB=OFF \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=24 \
    -DCMAKE_INSTALL_PREFIX="$PWD/third_party/highs" > third_party/highs-work/log 2>&1 &&
    cmake --build third_party/highs-work/build --target install >> third_party/highs-work/log 2>&1 ||
    { tail -n 20 third_party/highs-work/log >&2; echo "set-up: HiGHS could not be built" >&2; exit 1; }
  rm -rf third_party/highs-work
  touch "$highs_stamp"
}

only_highs || packages_ready || install_packages
docs_ready || install_docs
[ -e "$highs_stamp" ] || build_highs
