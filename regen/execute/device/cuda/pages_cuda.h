// Arenas over CUDA's virtual memory: addresses that stay while their memory goes and comes.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "regen/execute/device/memory_block.h"

namespace regen::execute {

// Of at least `bytes` bytes: CUDA hands memory out in pages (2 MiB on all cards so far), and the
// block has all bytes that it takes from the card. An error of code kMissing if this driver or card
// cannot do it, of code kLimit if there is no room.
Result<MemoryBlock> allocate_paged_cuda(c10::DeviceIndex index, Bytes bytes);

// Memory from cudaMalloc in the same clothes, freed in the end; to release it is refused with this
// reason.
MemoryBlock fixed_cuda_block(void* data, Bytes bytes, std::string why_not_releasable);

}  // namespace regen::execute
