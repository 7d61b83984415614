// Any graph, with its variants, as an instance of MONeT's model (see monet_binding.h).
#pragma once

#include "regen/published/monet/monet_binding.h"

namespace regen::published {

Result<MonetBinding> export_monet(const Graph& graph);

}  // namespace regen::published
