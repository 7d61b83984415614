# Checks sources that include CUDA's headers, without CUDA's libraries or a GPU. Run by ctest:
# cmake -DCOMPILER= -DROOT= -DTORCH= -DABI= -DSOURCES= [-DCUDA=] -P check_cuda_sources.cmake
if(NOT CUDA)
  set(CUDA /usr/local/cuda/include)
endif()
if(NOT EXISTS ${CUDA}/cuda_runtime_api.h)
  message("skipped: no CUDA headers in ${CUDA}")
  return()
endif()
foreach(source ${SOURCES})
  # A torch without CUDA lacks one generated header; the first macro says not to look for it.
  execute_process(
    COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion
            -Wno-sign-conversion -Wno-missing-field-initializers -Werror
            -DC10_USING_CUSTOM_GENERATED_MACROS -DREGEN_WITH_CUDA -D_GLIBCXX_USE_CXX11_ABI=${ABI}
            -I${ROOT} -isystem ${TORCH} -isystem ${CUDA} ${source}
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${source} does not compile")
  endif()
  message("checked ${source}")
endforeach()
