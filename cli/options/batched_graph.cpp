#include "cli/options/batched_graph.h"

#include <utility>

#include "regen/graph/batch_scaling.h"

namespace regen::cli {
namespace {

Result<BatchedGraph> of_zoo(const GraphArgument& argument) {
  REGEN_ASSIGN(const ZooReference reference, parse_zoo_reference(argument.text.substr(4)));
  BatchedGraph batched{.batch = reference.batch};
  // Chains have ops of unit size: no other batch can be built.
  if (zoo_graph(reference.name, zoo_options(argument, /*batch=*/2)).ok()) {
    batched.graph_at = zoo_at_batch(argument, reference.name);
  } else {
    batched.why_not = "'" + argument.text + "' has no batch";
  }
  return batched;
}

}  // namespace

search::GraphAtBatch zoo_at_batch(const GraphArgument& argument, const std::string& name) {
  return [argument, name](std::int64_t batch) -> Result<Graph> {
    GraphArgument at_batch = argument;
    at_batch.text = "zoo:" + name + "@" + std::to_string(batch);
    REGEN_ASSIGN(LoadedGraph loaded, load_graph(at_batch));
    return std::move(loaded.graph);
  };
}

Result<BatchedGraph> batched_graph(const GraphArgument& argument, const LoadedGraph& loaded,
                                   const std::optional<std::int64_t>& batch) {
  if (names_zoo(argument.text)) {
    if (batch) {
      return bad_input("--batch " + std::to_string(*batch) + " with '" + argument.text +
                       "', expected zoo:NAME@BATCH: it is for graphs in files");
    }
    return of_zoo(argument);
  }
  REGEN_ASSIGN(const std::optional<std::int64_t> stated, stated_batch(loaded.graph));
  if (!batch && !stated) {
    return BatchedGraph{.why_not = "'" + argument.text +
                                   "' does not say its batch, expected --batch N, "
                                   "attributes.batch in the file, or zoo:NAME"};
  }
  const std::int64_t from = batch ? *batch : *stated;
  BatchedGraph batched{.batch = from, .scaled = true};
  batched.graph_at = [&loaded, from](std::int64_t to) { return at_batch(loaded.graph, from, to); };
  return batched;
}

}  // namespace regen::cli
