# The torch of a Python environment as the target regen_torch: -DREGEN_PYTHON=..., under pip the
# environment that is installed into, else .venv, else python3. The answers of that Python are kept
# in the cache, since importing torch is slow.
if(NOT REGEN_PYTHON AND SKBUILD)
  set(python ${Python_EXECUTABLE})
elseif(NOT REGEN_PYTHON)
  set(python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  if(NOT EXISTS ${python})
    set(python python3)
  endif()
else()
  set(python ${REGEN_PYTHON})
endif()

set(question [[
import os, torch
print(os.path.dirname(torch.__file__), torch.__version__, torch.version.cuda or "none",
      int(torch.compiled_with_cxx11_abi()), sep=";")]])

if(REGEN_TORCH_FOLDER)
  file(TIMESTAMP "${REGEN_TORCH_FOLDER}/version.py" stamp)  # empty when it is gone
endif()
if(NOT REGEN_TORCH_PYTHON STREQUAL python OR NOT stamp OR NOT REGEN_TORCH_STAMP STREQUAL stamp)
  # pip hides the environment's packages from builds by a variable that -I ignores.
  foreach(flags "" -I)
    execute_process(COMMAND ${python} ${flags} -c "${question}" OUTPUT_VARIABLE answer
                    ERROR_VARIABLE problem RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed)
      break()
    endif()
  endforeach()
  if(failed)
    message(FATAL_ERROR "regen: ${python} has no torch (run tools/setup.sh, before pip install install torch, or name another Python "
                        "with -DREGEN_PYTHON=, or leave the runtime out with -DREGEN_TORCH=OFF)\n${problem}")
  endif()
  list(GET answer 0 REGEN_TORCH_FOLDER)
  list(GET answer 1 REGEN_TORCH_VERSION)
  list(GET answer 2 REGEN_TORCH_CUDA)
  list(GET answer 3 REGEN_TORCH_ABI)
  file(TIMESTAMP "${REGEN_TORCH_FOLDER}/version.py" REGEN_TORCH_STAMP)
  set(REGEN_TORCH_PYTHON "${python}")
  foreach(name PYTHON FOLDER VERSION CUDA ABI STAMP)
    set(REGEN_TORCH_${name} "${REGEN_TORCH_${name}}" CACHE INTERNAL "")
  endforeach()
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${REGEN_TORCH_FOLDER}/version.py")
message(STATUS "torch ${REGEN_TORCH_VERSION} (CUDA: ${REGEN_TORCH_CUDA}) in ${REGEN_TORCH_FOLDER}")

set(torch_lib ${REGEN_TORCH_FOLDER}/lib)
add_library(regen_torch INTERFACE IMPORTED GLOBAL)
target_include_directories(regen_torch SYSTEM INTERFACE ${REGEN_TORCH_FOLDER}/include)
# The second: torch's own headers include the operators that they need, not all 2,700 of them.
target_compile_definitions(regen_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${REGEN_TORCH_ABI} AT_PER_OPERATOR_HEADERS)
target_link_options(regen_torch INTERFACE -Wl,-rpath,${torch_lib})
# Kernels register themselves when their library is loaded: it must stay although nothing of it is called.
set(torch_libraries ${torch_lib}/libtorch.so ${torch_lib}/libtorch_cpu.so ${torch_lib}/libc10.so)
if(NOT REGEN_TORCH_CUDA STREQUAL "none")
  find_package(CUDAToolkit REQUIRED)
  list(APPEND torch_libraries ${torch_lib}/libtorch_cuda.so ${torch_lib}/libc10_cuda.so)
  target_compile_definitions(regen_torch INTERFACE REGEN_WITH_CUDA)
  target_include_directories(regen_torch SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()
# The C++ library comes first: libtorch exports parts of the older one that it was built with (std::filesystem), and
# whichever library is named first is the one that is called.
list(JOIN torch_libraries "," torch_libraries)
target_link_libraries(regen_torch INTERFACE -Wl,--push-state,--no-as-needed,-lstdc++,${torch_libraries},--pop-state)
if(TARGET CUDA::cudart)
  target_link_libraries(regen_torch INTERFACE CUDA::cudart)
endif()

# regen_use_torch(NAME) links the folder NAME with torch. Its sources named *_cuda.cpp or in device/cuda need a torch
# with CUDA; where there is none they are left out, and a test has the compiler check them.
function(regen_use_torch name)
  target_link_libraries(regen_${name} PUBLIC regen_torch)
  if(REGEN_TORCH_CUDA STREQUAL "none")
    get_target_property(sources regen_${name} SOURCES)
    set(cuda_sources ${sources})
    set(needs_cuda "(_cuda|/device/cuda/[a-z_]+)\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "${needs_cuda}")
    list(FILTER cuda_sources INCLUDE REGEX "${needs_cuda}")
    set_target_properties(regen_${name} PROPERTIES SOURCES "${sources}")
    set_property(GLOBAL APPEND PROPERTY REGEN_CUDA_SOURCES ${cuda_sources})
  endif()
endfunction()

# regen_check_cuda_sources() makes the test cuda_sources_compile from what was left out above. It needs
# CUDA's headers, and says that it is skipped where they are not installed.
function(regen_check_cuda_sources)
  get_property(sources GLOBAL PROPERTY REGEN_CUDA_SOURCES)
  if(NOT sources)
    return()
  endif()
  add_test(NAME cuda_sources_compile
           COMMAND ${CMAKE_COMMAND} -DCOMPILER=${CMAKE_CXX_COMPILER} -DROOT=${PROJECT_SOURCE_DIR}
                   -DTORCH=${REGEN_TORCH_FOLDER}/include -DABI=${REGEN_TORCH_ABI} "-DSOURCES=${sources}"
                   -P ${PROJECT_SOURCE_DIR}/cmake/check_cuda_sources.cmake)
  set_tests_properties(cuda_sources_compile PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: " TIMEOUT 600)
endfunction()
