// The models that come with regen, by name.
//
// Each family is one source file with a table of entries; zoo.cpp joins the tables. A graph is
// made from an entry, a batch size and one of two ways to write the backward pass.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/models/backward/backward_exact.h"
#include "regen/models/layers/layers.h"
#include "regen/models/layers/work.h"

namespace regen {

// kCheckmate: one gradient op for each layer, with the dependencies the Checkmate paper assumed
// (docs/reference/models.md). kExact: the ops and saved tensors that PyTorch has.
enum class BackwardStyle : std::uint8_t { kCheckmate, kExact };

struct ZooOptions {
  std::int64_t batch = 1;  // 1 to kMaxBatch
  BackwardStyle backward = BackwardStyle::kCheckmate;
  // kDefault: kArtifact for kCheckmate, except the "modern" family; else kCorrect.
  FlopRules rules = FlopRules::kDefault;
  Optimizer optimizer = Optimizer::kNone;  // kExact only
};

inline constexpr std::int64_t kMaxBatch = 1'000'000;
inline constexpr std::int64_t kMaxChain = 1'000'000;

// One model: a row of a family's table.
struct ZooEntry {
  const char* name;    // as documented; looked up without letter case
  const char* family;  // "keras", "segmentation", "modern", "synthetic"
  const char* input;   // the input's shape for people: "224x224x3"
  // `variant` is the entry's own number, so that one function can serve several names.
  LayerGraph (*build)(int variant);
  int variant = 0;
};

// The tables, one for each family.
std::span<const ZooEntry> keras_models();
std::span<const ZooEntry> segmentation_models();
std::span<const ZooEntry> synthetic_models();
std::span<const ZooEntry> modern_models();  // transformers and networks after 2019

struct ZooInfo {
  std::string name;
  std::string family;
  std::string input;
};

// Every model in the order of the tables, and the pattern "chain:N" last.
std::vector<ZooInfo> zoo_list();

struct ZooReference {
  std::string name;
  std::int64_t batch = 1;
};

// Splits "vgg19@32"; batch 1 unless given.
Result<ZooReference> parse_zoo_reference(std::string_view text);

// The layers of a model; "chain:N" has none and is refused.
Result<LayerGraph> zoo_layers(std::string_view name);

Result<Graph> zoo_graph(std::string_view name, const ZooOptions& options = {});

struct ZooSummary {
  std::string name;
  std::string family;
  std::string input;
  std::int64_t layers = 0;  // n: forward ops, the input not counted
  std::int64_t nodes = 0;   // ops of the graph
  std::int64_t edges = 0;
  std::int64_t parameters = 0;  // trainable or not
  double forward_cost = 0;      // at options.batch, in flop
  double base_cost = 0;         // forward and backward
  Bytes activation_bytes = 0;   // tensors made in the forward phase
  Bytes fixed_bytes = 0;
};

Result<ZooSummary> zoo_summary(std::string_view name, const ZooOptions& options = {});

}  // namespace regen
