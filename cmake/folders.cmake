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

# regen_test(NAME) makes NAME_test from every source in tests/NAME and
# registers it with ctest, one entry for each test case.
function(regen_test name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${ARGN} GTest::gtest GTest::gmock GTest::gtest_main)
  # What is slow in a test is the code under test; the rest need not be optimised fully.
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()
