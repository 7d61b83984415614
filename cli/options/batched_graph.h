// A graph that can be had at other batches too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/options/options.h"
#include "regen/search/services/max_batch.h"

namespace regen::cli {

struct BatchedGraph {
  search::GraphAtBatch graph_at;  // empty if the batch is not known
  std::int64_t batch = 0;         // of the graph as it was loaded
  bool scaled = false;            // in proportion, not built anew
  std::string why_not;            // one line for people, where the batch is not known
};

// Models of the zoo are built anew; a graph of a file is scaled if its attributes or `batch`, which
// goes before them, say what its batch is. `loaded` must outlive what is returned.
Result<BatchedGraph> batched_graph(const GraphArgument& argument, const LoadedGraph& loaded,
                                   const std::optional<std::int64_t>& batch);

// zoo:NAME at a batch, with the costs that the argument asks for.
search::GraphAtBatch zoo_at_batch(const GraphArgument& argument, const std::string& name);

}  // namespace regen::cli
