# regen_layers(FILE) makes one static library from each line of the list of layers: see the head of cmake/layers.txt.
# Folders that are left out (no torch) take those that use them along. regen::regen is the sum of all that need no torch.
function(regen_layers list)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${list})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${list} lines REGEX "^[a-z_]+:")
  foreach(line ${lines})
    string(REGEX MATCH "^([a-z_]+):([a-z_ ]*)([+]?)([a-z_ ]*)$" matched "${line}")
    if(NOT matched)
      message(FATAL_ERROR "${list}: expected 'folder: folders + libraries', found '${line}'")
    endif()
    set(folder ${CMAKE_MATCH_1})
    separate_arguments(below UNIX_COMMAND "${CMAKE_MATCH_2}")
    separate_arguments(libraries UNIX_COMMAND "${CMAKE_MATCH_4}")
    regen_folder_is_built(built "${below}" "${libraries}")
    if(built)
      regen_folder(${folder} ${below})
      foreach(library ${libraries})
        cmake_language(CALL regen_use_${library} ${folder})
      endforeach()
      regen_note_torch_free(${folder} "${below}" "${libraries}")
      regen_unities(regen_${folder})
      if(EXISTS ${PROJECT_SOURCE_DIR}/regen/${folder}/page)
        regen_page(${folder})  # after the unities, which are made of sources that are there
      endif()
    endif()
  endforeach()
  get_property(torch_free GLOBAL PROPERTY REGEN_TORCH_FREE)
  list(TRANSFORM torch_free PREPEND regen_)
  add_library(regen_all INTERFACE)
  add_library(regen::regen ALIAS regen_all)
  set_target_properties(regen_all PROPERTIES EXPORT_NAME regen)
  target_link_libraries(regen_all INTERFACE ${torch_free})
endfunction()

function(regen_folder_is_built result below libraries)
  set(${result} ON PARENT_SCOPE)
  if("torch" IN_LIST libraries AND NOT REGEN_TORCH)
    set(${result} OFF PARENT_SCOPE)
  endif()
  foreach(folder ${below})
    if(NOT TARGET regen_${folder})
      set(${result} OFF PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# Keeps the global property REGEN_TORCH_FREE: the folders that can be used without torch.
function(regen_note_torch_free folder below libraries)
  get_property(torch_free GLOBAL PROPERTY REGEN_TORCH_FREE)
  foreach(name ${below})
    if(NOT name IN_LIST torch_free)
      return()
    endif()
  endforeach()
  if(NOT "torch" IN_LIST libraries)
    set_property(GLOBAL APPEND PROPERTY REGEN_TORCH_FREE ${folder})
  endif()
endfunction()

# regen_folder(NAME DEPENDENCY...) makes the static library regen_NAME, for other projects regen::NAME, from
# every source in regen/NAME (folders below it included).
function(regen_folder name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/regen/${name}/*.cpp)
  add_library(regen_${name} STATIC ${sources})
  add_library(regen::${name} ALIAS regen_${name})
  set_target_properties(regen_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(regen_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_compile_features(regen_${name} PUBLIC cxx_std_20)
  list(TRANSFORM ARGN PREPEND regen_ OUTPUT_VARIABLE dependencies)
  target_link_libraries(regen_${name} PUBLIC ${dependencies})
endfunction()

# The page in regen/NAME/page as a C++ source, so that a program needs no file beside it: page.cmake.
function(regen_page name)
  set(folder ${PROJECT_SOURCE_DIR}/regen/${name}/page)
  set(output ${PROJECT_BINARY_DIR}/regen_${name}_page/page_template.cpp)
  file(GLOB parts CONFIGURE_DEPENDS ${folder}/* ${PROJECT_SOURCE_DIR}/regen/base/html/*)
  add_custom_command(OUTPUT ${output} COMMAND ${CMAKE_COMMAND} -DREGEN=${PROJECT_SOURCE_DIR}/regen -DROOM=${name} -DOUTPUT=${output}
                             -P ${PROJECT_SOURCE_DIR}/cmake/page.cmake
                     DEPENDS ${parts} ${PROJECT_SOURCE_DIR}/cmake/page.cmake VERBATIM)
  target_sources(regen_${name} PRIVATE ${output})
endfunction()

# What a library named after the + of a line means for the folder. regen_use_torch is in torch.cmake.
function(regen_use_json folder)
  target_link_libraries(regen_${folder} PUBLIC nlohmann_json::nlohmann_json Threads::Threads)
endfunction()

function(regen_use_highs folder)
  target_link_libraries(regen_${folder} PRIVATE highs::highs)
endfunction()

# The daemon's event loop: headers only. Without the last definition, whether Asio allocates by new or by malloc
# depends on what a source includes before it.
function(regen_use_asio folder)
  find_path(ASIO_INCLUDE_DIR asio.hpp HINTS ${PROJECT_SOURCE_DIR}/third_party/asio REQUIRED)
  target_include_directories(regen_${folder} SYSTEM PUBLIC $<BUILD_INTERFACE:${ASIO_INCLUDE_DIR}>)
  target_compile_definitions(regen_${folder} PUBLIC ASIO_STANDALONE ASIO_NO_DEPRECATED ASIO_DISABLE_STD_ALIGNED_ALLOC)
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
  regen_unities(${name}_test)
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
