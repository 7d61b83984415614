# REGEN_PCH: the large headers of torch, Asio and CLI11 are compiled once for each target that includes them instead of
# once for each source (a third of the time of such a source). For builds from nothing, such as those by pip; a compiler
# cache shares objects between source folders only without it. The other folders gain nothing: they wait for the optimiser.
set(regen_asio_headers <nlohmann/json.hpp> <asio/io_context.hpp> <asio/local/stream_protocol.hpp> <asio/steady_timer.hpp>)
set(regen_torch_headers <nlohmann/json.hpp> <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h> <ATen/Context.h>
    <c10/util/Exception.h>)

# regen_precompile(TARGET HEADER...) gives the target a precompiled header of its own.
function(regen_precompile target)
  if(REGEN_PCH)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# regen_precompile_folder(NAME LIBRARIES) gives one to a folder that includes such headers.
function(regen_precompile_folder name libraries)
  get_property(torch_free GLOBAL PROPERTY REGEN_TORCH_FREE)
  if("asio" IN_LIST libraries)
    regen_precompile(regen_${name} ${regen_asio_headers})
  elseif(NOT name IN_LIST torch_free)
    regen_precompile(regen_${name} ${regen_torch_headers})
  endif()
endfunction()
