// A storage whose memory is taken away for a while. Tensors over it keep everything else.
#pragma once

#include <c10/core/Storage.h>

namespace regen::execute {

// False for one whose memory is away; true for storages of no bytes.
bool has_memory(const c10::Storage& storage);

// Whether this torch refuses operators on tensors whose memory is away. One that cannot take such a
// refusal back (2.11) gives them a null pointer instead: an operator on them ends the
// process or its use of the GPU.
bool refuses_access();

// Where refuses_access(), an access to the tensors is then an error that says why.
void take_memory_away(const c10::Storage& storage);
void give_memory(const c10::Storage& storage, c10::DataPtr memory);

}  // namespace regen::execute
