# cmake -DBUILD= -DSOURCE= -DCOMPILER= -P run.cmake: installs what BUILD has built into a folder outside the tree, builds
# the project of SOURCE there with it, and checks what that prints. Run by ctest.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE out ERROR_VARIABLE out)
  set(output "${out}" PARENT_SCOPE)
  if(failed)
    message("${out}")
    file(REMOVE_RECURSE ${place})
    message(FATAL_ERROR "consumer: ${what} failed with status ${failed}")
  endif()
endfunction()

execute_process(COMMAND mktemp -d OUTPUT_VARIABLE place OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(COPY ${SOURCE}/CMakeLists.txt ${SOURCE}/consumer.cpp DESTINATION ${place}/source)
run("installing" ${CMAKE_COMMAND} --install ${BUILD} --component development --prefix ${place}/prefix)
run("configuring" ${CMAKE_COMMAND} -S ${place}/source -B ${place}/build -G Ninja -DCMAKE_PREFIX_PATH=${place}/prefix
    -DCMAKE_CXX_COMPILER=${COMPILER})
run("building" ${CMAKE_COMMAND} --build ${place}/build)
run("planning" ${place}/build/consumer)
file(REMOVE_RECURSE ${place})

message("${output}")
if(NOT output MATCHES "^VGG19: ([0-9.]+) ms in ([0-9.]+) GB, ([0-9.]+) ms in ([0-9.]+) GB\n$")
  message(FATAL_ERROR "consumer: expected two times of VGG19")
endif()
if(CMAKE_MATCH_3 LESS CMAKE_MATCH_1 OR CMAKE_MATCH_4 GREATER CMAKE_MATCH_2)
  message(FATAL_ERROR "consumer: half of the memory must take no less time, and fewer bytes")
endif()
