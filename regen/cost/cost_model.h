// What running an op costs, as an interface with measured and analytic versions (and fake ones
// in tests): planners see only the numbers that apply_costs puts into the graph.
//
//   flop        the arithmetic of the variant, in flop
//   roofline    seconds on a device: max(arithmetic / peak, traffic / bandwidth) + launch
//   table       seconds measured op by op, from a file (cost_table.h)
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"

namespace regen {

// In the unit of the model that gave it.
struct OpCost {
  double first = 0;
  double rerun = 0;

  bool operator==(const OpCost&) const = default;
};

class CostModel {
 public:
  virtual ~CostModel() = default;

  virtual CostUnit unit() const = 0;

  // Whether the graph carries what the model needs; apply_costs asks this first. The error says
  // what is missing.
  virtual Status check(const Graph&) const { return {}; }

  // Of one variant of a graph that passed check().
  virtual Result<OpCost> cost(const Graph& graph, VariantId variant) const = 0;
};

// The same graph with the model's costs and unit. Refuses costs that are negative or not finite.
Result<Graph> apply_costs(const Graph& graph, const CostModel& model);

// Variant::flops as the cost. Refuses graphs in which no variant has any.
std::unique_ptr<CostModel> make_flop_model();

enum class Precision : std::uint8_t { kFp32, kFp16 };

// Variants with neither flops nor traffic, such as views, cost nothing, not even a launch. The
// precision chooses the peak of matrix ops; tensor sizes are the graph's in both.
std::unique_ptr<CostModel> make_roofline_model(Device device, Precision precision);

// Whether the roofline gives ops of this type the matrix peak: convolutions, dense layers,
// products, attention, and their gradients.
bool is_matrix_type(std::string_view type);

// From text: "flop", "roofline" or "roofline:fp32", "roofline:fp16", "table:FILE". The
// roofline needs the device.
Result<std::unique_ptr<CostModel>> make_cost_model(std::string_view spec,
                                                   const std::optional<Device>& device = {});

}  // namespace regen
