# regen_folder(NAME DEPENDENCY...) makes the static library regen_NAME from
# every source in regen/NAME (folders below it included).
function(regen_folder name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/regen/${name}/*.cpp)
  add_library(regen_${name} STATIC ${sources})
  target_include_directories(regen_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  if(ARGN)
    list(TRANSFORM ARGN PREPEND regen_ OUTPUT_VARIABLE dependencies)
    target_link_libraries(regen_${name} PUBLIC ${dependencies})
  else()
    target_link_libraries(regen_${name} PUBLIC nlohmann_json::nlohmann_json Threads::Threads)
  endif()
endfunction()

# Makes NAME_test from every source in tests/NAME.
function(regen_test_program name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${ARGN} GTest::gtest GTest::gmock GTest::gtest_main)
  # What is slow in a test is the code under test; the rest need not be optimised fully.
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# regen_test(NAME) registers NAME_test with ctest, one entry for each test case.
function(regen_test name)
  regen_test_program(${name} ${ARGN})
  if(TARGET ${name}_test)
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
  endif()
endfunction()

# The same in two entries, for programs that take long to start: loading torch takes longer than most test cases.
# One thread of torch each: threads that spin for each other lose whole turns of the scheduler where others use the cores.
function(regen_test_in_halves name)
  regen_test_program(${name} ${ARGN})
  foreach(half 0 1)
    add_test(NAME ${name}_half_${half} COMMAND ${name}_test --gtest_brief=1)
    set_tests_properties(${name}_half_${half} PROPERTIES TIMEOUT 600
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=${half};OMP_NUM_THREADS=1")
  endforeach()
endfunction()
