#!/usr/bin/env bash
# tools/build_minimalloc.sh SOURCES: builds MiniMalloc from a folder of its sources, with Abseil in external/abseil-cpp, into
# third_party/minimalloc/minimalloc, where benchmarks/packing.py looks for it. Needs no network; its own tests are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
sources=${1:?usage: tools/build_minimalloc.sh SOURCES}
for needed in src/main.cc external/abseil-cpp/CMakeLists.txt; do
  [ -e "$sources/$needed" ] || { echo "build_minimalloc: $sources has no $needed, expected MiniMalloc's sources with Abseil" >&2; exit 2; }
done
work=third_party/minimalloc/work
rm -rf third_party/minimalloc
mkdir -p $work
# The project itself asks for GoogleTest too, which only its tests use.
cat > $work/CMakeLists.txt <<EOF
cmake_minimum_required(VERSION 3.25)
project(minimalloc LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(ABSL_PROPAGATE_CXX_STD ON)
add_subdirectory($(realpath "$sources")/external/abseil-cpp abseil EXCLUDE_FROM_ALL)
file(GLOB sources $(realpath "$sources")/src/*.cc)
add_executable(minimalloc \${sources})
target_link_libraries(minimalloc PRIVATE absl::flags absl::flags_parse absl::statusor absl::log absl::log_initialize
                      absl::btree absl::flat_hash_map absl::flat_hash_set)
EOF
cmake -S $work -B $work/build -G Ninja -DCMAKE_BUILD_TYPE=Release > $work/log 2>&1 && cmake --build $work/build --target minimalloc >> $work/log 2>&1 ||
  { tail -n 20 $work/log >&2; echo "build_minimalloc: MiniMalloc could not be built" >&2; exit 1; }
mv $work/build/minimalloc third_party/minimalloc/minimalloc
rm -rf $work
echo "built third_party/minimalloc/minimalloc"
