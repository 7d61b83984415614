// A storage whose memory is taken away for a while. Tensors over it keep everything else.
#pragma once

#include <c10/core/Storage.h>

namespace regen {

// False for one whose memory is away; true for storages of no bytes.
bool has_memory(const c10::Storage& storage);

// Whoever touches the tensors gets an error that says why. (A torch that cannot take such an error
// back gives them a null pointer, and an operator on them ends the process.)
void take_memory_away(const c10::Storage& storage);
void give_memory(const c10::Storage& storage, c10::DataPtr memory);

}  // namespace regen
