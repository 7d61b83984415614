# REGEN_UNITY: the most lines of sources that are compiled as one unity; 0 compiles each source alone. Most of the time of a
# build from nothing goes into headers, which a unity reads once. The presets choose it; `debug` compiles each source alone, for
# those who edit and compile again.
set(REGEN_UNITY 0 CACHE STRING "The most lines of sources that are compiled as one unity; 0: each source alone")
find_program(REGEN_UNITY_PYTHON python3)

# regen_unities(TARGET) divides the sources of a target into unities, where that is asked for; call it when they are complete.
# tools/unities.py keeps sources apart whose local names clash, so no source is written for it.
function(regen_unities target)
  if(NOT REGEN_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  execute_process(COMMAND ${REGEN_UNITY_PYTHON} ${PROJECT_SOURCE_DIR}/tools/unities.py ${REGEN_UNITY} ${sources}
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE answer COMMAND_ERROR_IS_FATAL ANY)
  # Lines into a list; the semicolons between the files of a line stand aside for the moment.
  set(number 0)
  string(REPLACE ";" "|" answer "${answer}")
  string(REGEX MATCHALL "[^\n]+" lines "${answer}")
  foreach(line ${lines})
    string(REPLACE "|" ";" files "${line}")
    set_source_files_properties(${files} PROPERTIES UNITY_GROUP ${target}_${number})
    math(EXPR number "${number} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
