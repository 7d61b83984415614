#include "regen/cost/cost_model.h"

#include <algorithm>
#include <cmath>

#include "regen/base/file.h"
#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/cost/cost_table.h"

namespace regen {
namespace {

std::string describe(const Graph& graph, VariantId v) {
  const OpId op = graph.op(v);
  std::string text = "op " + std::to_string(op.index()) + " " + in_quotes(graph.name(op));
  if (!graph.name(v).empty()) text += " variant " + in_quotes(graph.name(v));
  return text;
}

bool valid_cost(double cost) {
  return std::isfinite(cost) && cost >= 0;
}

// Whether `has` holds for some variant of the graph.
template <typename Predicate>
bool any_variant(const Graph& graph, Predicate has) {
  const IdRange<VariantId> variants(graph.num_variants());
  return std::any_of(variants.begin(), variants.end(), has);
}

class FlopModel final : public CostModel {
 public:
  CostUnit unit() const override { return CostUnit::kFlop; }

  Status check(const Graph& graph) const override {
    if (any_variant(graph, [&](VariantId v) { return graph.flops(v) > 0; })) return {};
    return bad_input("graph " + in_quotes(graph.name()) +
                     ": no op has flops, expected some for the cost model flop, or --cost graph: "
                     "what it carries");
  }

  Result<OpCost> cost(const Graph& graph, VariantId v) const override {
    return OpCost{graph.flops(v), graph.flops(v)};
  }
};

class RooflineModel final : public CostModel {
 public:
  RooflineModel(Device device, Precision precision)
      : device_(std::move(device)),
        matrix_peak_(precision == Precision::kFp16 ? device_.matrix_fp16 : device_.matrix_fp32) {}

  CostUnit unit() const override { return CostUnit::kSecond; }

  Status check(const Graph& graph) const override {
    const auto has_work = [&](VariantId v) { return graph.flops(v) > 0 || graph.traffic(v) > 0; };
    if (any_variant(graph, has_work)) return {};
    return bad_input("graph " + in_quotes(graph.name()) +
                     ": no op has flops or traffic, expected some for the cost model roofline, or "
                     "--cost graph: what it carries");
  }

  Result<OpCost> cost(const Graph& graph, VariantId v) const override {
    const double flops = graph.flops(v);
    const double traffic = graph.traffic(v);
    if (flops == 0 && traffic == 0) return OpCost{};
    const bool matrix = is_matrix_type(graph.type(graph.op(v)));
    const double arithmetic = flops / (matrix ? matrix_peak_ : device_.vector_fp32);
    const double movement = traffic / device_.memory_bandwidth;
    const double seconds = std::max(arithmetic, movement) + device_.launch_seconds;
    return OpCost{seconds, seconds};
  }

 private:
  Device device_;
  double matrix_peak_;
};

enum class Place : std::uint8_t { kAnywhere, kWordStart };

struct TypeRule {
  std::string_view text;
  Place place;
  bool matrix;
};

// The first rule that matches decides. Short or common words count at the start of a word only:
// "bilinear" is no "linear", and "comm" no "mm".
constexpr TypeRule kTypeRules[] = {
    {"convert", Place::kWordStart, false},   // a cast
    {"embedding", Place::kAnywhere, false},  // embedding_dense_backward is a scatter
    {"conv", Place::kAnywhere, true},       {"matmul", Place::kAnywhere, true},
    {"attention", Place::kAnywhere, true},  {"addmm", Place::kAnywhere, true},
    {"bmm", Place::kAnywhere, true},  // baddbmm too
    {"gemm", Place::kAnywhere, true},       {"einsum", Place::kAnywhere, true},
    {"mm", Place::kWordStart, true},        {"linear", Place::kWordStart, true},
    {"dense", Place::kWordStart, true},
};

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool matches(std::string_view type, const TypeRule& rule) {
  for (auto at = type.find(rule.text); at != std::string_view::npos;
       at = type.find(rule.text, at + 1)) {
    if (rule.place == Place::kAnywhere || at == 0 || !is_word_char(type[at - 1])) return true;
  }
  return false;
}

}  // namespace

Result<Graph> apply_costs(const Graph& graph, const CostModel& model) {
  REGEN_TRY(model.check(graph));
  std::vector<double> first;
  std::vector<double> rerun;
  first.reserve(graph.num_variants());
  rerun.reserve(graph.num_variants());
  for (VariantId v : IdRange<VariantId>(graph.num_variants())) {
    REGEN_ASSIGN(const OpCost cost, model.cost(graph, v));
    if (!valid_cost(cost.first) || !valid_cost(cost.rerun)) {
      const double wrong = valid_cost(cost.first) ? cost.rerun : cost.first;
      return bad_input("graph " + in_quotes(graph.name()) + ": " + describe(graph, v) + ": cost " +
                       format_exact(wrong) + ", expected a finite number not below 0");
    }
    first.push_back(cost.first);
    rerun.push_back(cost.rerun);
  }
  return graph.with_costs(first, rerun, model.unit());
}

std::unique_ptr<CostModel> make_flop_model() {
  return std::make_unique<FlopModel>();
}

std::unique_ptr<CostModel> make_roofline_model(Device device, Precision precision) {
  return std::make_unique<RooflineModel>(std::move(device), precision);
}

bool is_matrix_type(std::string_view type) {
  std::string lower(type);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  for (const TypeRule& rule : kTypeRules) {
    if (matches(lower, rule)) return rule.matrix;
  }
  return false;
}

Result<std::unique_ptr<CostModel>> make_cost_model(std::string_view spec,
                                                   const std::optional<Device>& device) {
  if (spec == "flop") return make_flop_model();
  const bool fp16 = spec == "roofline:fp16";
  if (fp16 || spec == "roofline" || spec == "roofline:fp32") {
    if (!device) {
      return bad_input("cost model " + in_quotes(spec) +
                       " needs a device, expected --device with " + builtin_device_names() +
                       " or the path of a device file");
    }
    REGEN_TRY(check_device(*device, "device " + in_quotes(device->name)));
    return make_roofline_model(*device, fp16 ? Precision::kFp16 : Precision::kFp32);
  }
  constexpr std::string_view kTable = "table:";
  if (spec.starts_with(kTable) && spec.size() > kTable.size()) {
    const std::string path(spec.substr(kTable.size()));
    REGEN_ASSIGN(const std::string text, read_file(path));
    REGEN_ASSIGN(CostTable table, parse_cost_table(text, path));
    return make_table_model(std::move(table));
  }
  return bad_input("unknown cost model " + in_quotes(spec) +
                   ", expected flop, roofline, roofline:fp16 or table:FILE");
}

}  // namespace regen
