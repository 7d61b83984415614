// write_random_graphs FOLDER FIRST COUNT: random training steps with the seeds FIRST, FIRST + 1, ... as files
// FOLDER/random_SEED.json, for experiments/before_after.py. Up to a hundred ops each.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "regen/graph/format_regen.h"
#include "tests/support/graphs/random_graph.h"

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: write_random_graphs FOLDER FIRST COUNT\n");
    return 2;
  }
  const std::uint64_t first = std::strtoull(arguments[2], nullptr, 10);
  const std::uint64_t graphs = std::strtoull(arguments[3], nullptr, 10);
  for (std::uint64_t seed = first; seed < first + graphs; ++seed) {
    regen::Random random(seed);
    // Half small, half larger than what exact search settles at once.
    const int layers = seed % 2 == 0 ? 10 : 30;
    const regen::Graph graph = regen::testing::random_training_graph(
        random, {.min_layers = layers / 2, .max_layers = layers, .max_bytes = 50});
    const auto text = regen::write_regen_graph(graph);
    const std::string path =
        std::string(arguments[1]) + "/random_" + std::to_string(seed) + ".json";
    std::ofstream file(path);
    if (!text.ok() || !(file << *text) || !file.flush()) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(),
                   text.ok() ? "cannot be written" : text.error().message.c_str());
      return 2;
    }
  }
  return 0;
}
