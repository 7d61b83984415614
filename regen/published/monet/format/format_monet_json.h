// One MONeT node and the lists of an instance as JSON values; used by the file and by the
// attributes that carry an instance through a Graph.
#pragma once

#include "regen/base/json.h"
#include "regen/published/monet/format/format_monet.h"

namespace regen::published {

Json monet_node_json(const MonetNode& node, std::size_t id);
// All but the nodes.
Json monet_header_json(const MonetInstance& instance);

// `num_nodes` bounds the ids inside.
Result<MonetNode> read_monet_node(const JsonCursor& at, std::size_t id, std::size_t num_nodes);
Result<MonetInstance> read_monet_header(const JsonCursor& at, std::size_t num_nodes);

// The checks that need the whole instance.
Status check_monet_instance(const MonetInstance& instance, const JsonCursor& at);

}  // namespace regen::published
