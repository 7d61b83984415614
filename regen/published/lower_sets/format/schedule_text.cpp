#include "regen/published/lower_sets/format/schedule_text.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "regen/base/json.h"
#include "regen/base/text.h"
#include "regen/base/units.h"
#include "regen/published/lower_sets/format/format_lower_sets.h"

namespace regen::published {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    if (line.empty()) return words;
    const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

std::optional<std::uint32_t> parse_id(std::string_view word) {
  const auto value = parse_int(word);
  if (!value.ok() || *value < 0 || *value >= UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

std::optional<ScheduleOrder> parse_compute(const std::vector<std::string_view>& words) {
  if (words.size() < 2) return std::nullopt;
  ScheduleOrder order;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto id = parse_id(words[i]);
    if (!id) return std::nullopt;
    if (i == 1) {
      order.id = *id;
    } else {
      order.outputs.push_back(*id);
    }
  }
  return order;
}

std::optional<ScheduleOrder> parse_forget(const std::vector<std::string_view>& words) {
  if (words.size() != 3 || (words[2] != "forward" && words[2] != "backward")) return std::nullopt;
  const auto id = parse_id(words[1]);
  if (!id) return std::nullopt;
  const OrderKind kind =
      words[2] == "forward" ? OrderKind::kForgetValue : OrderKind::kForgetGradient;
  return ScheduleOrder{.kind = kind, .id = *id};
}

// The number of the block of the file that an op stands for; none for sums of gradients.
std::optional<std::uint32_t> block_of(const Graph& graph, OpId op) {
  const auto fields = parse_json(graph.attributes(op), "");
  if (!fields.ok() || !fields->is_object() || !fields->contains("lower_sets")) return std::nullopt;
  const Json& carried = (*fields)["lower_sets"];
  if (!carried.is_object() || !carried.contains("block")) return std::nullopt;
  const Json& block = carried["block"];
  if (!block.is_number_unsigned() || block.get<std::uint64_t>() >= UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(block.get<std::uint64_t>());
}

// How the ops and tensors of a graph lie in its file.
struct FilePlaces {
  IdVector<OpId, std::optional<std::uint32_t>> block;  // none: adds up parts of a gradient
  IdVector<TensorId, TensorId> variable;  // whose gradient, or a part of it, the tensor is
};

Result<FilePlaces> places_in_file(const Graph& graph) {
  REGEN_ASSIGN(const LowerSetFile file, lower_sets_from_graph(graph));
  FilePlaces places{.block = IdVector<OpId, std::optional<std::uint32_t>>(graph.num_ops()),
                    .variable = IdVector<TensorId, TensorId>(graph.num_tensors())};
  for (OpId op : graph.ops()) {
    const auto made = graph.outputs(op);
    const bool backward = graph.phase(op) == Phase::kBackward;
    const auto block = block_of(graph, op);
    if (block && *block < file.blocks.size() && file.blocks[*block].backward == backward &&
        file.blocks[*block].outputs.size() == made.size()) {
      places.block[op] = block;
      for (std::size_t i = 0; backward && i < made.size(); ++i) {
        places.variable[made[i]] = TensorId(file.blocks[*block].outputs[i]);
      }
    } else if (!block && backward && graph.type(op) == "accumulate" && made.size() == 1 &&
               !graph.inputs(op).empty()) {
      places.variable[made[0]] = places.variable[graph.inputs(op)[0]];
    } else {
      return bad_input("graph '" + graph.name() + "': op " + std::to_string(op.index()) + " " +
                       in_quotes(graph.name(op)) +
                       " is no block of a lower-set file, expected a graph read from one");
    }
  }
  return places;
}

}  // namespace

bool looks_like_schedule(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.starts_with("compute ") || text.starts_with("forget ") ||
         text.starts_with("IMPOSSIBLE");
}

Result<Schedule> read_schedule(std::string_view text, const std::string& source) {
  Schedule schedule;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto words = words_of(content);
    const std::string place = source + ": line " + std::to_string(line) + ": ";
    if (words.empty()) {
      if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) break;
      return bad_input(place + "an empty line found, expected an order");
    }
    if (words[0] == "IMPOSSIBLE") {
      return bad_input(place + "IMPOSSIBLE found: the solver had no schedule for its budget");
    }
    auto order = words[0] == "compute"  ? parse_compute(words)
                 : words[0] == "forget" ? parse_forget(words)
                                        : std::nullopt;
    if (!order) {
      return bad_input(place + in_quotes(content) +
                       " found, expected 'compute BLOCK', 'compute BLOCK OUTPUT...' or 'forget "
                       "VARIABLE forward|backward'");
    }
    schedule.push_back(std::move(*order));
  }
  if (schedule.empty()) return bad_input(source + ": line 1: the text ends, expected an order");
  return schedule;
}

std::string write_schedule(const Schedule& schedule) {
  std::string text;
  for (const ScheduleOrder& order : schedule) {
    const bool compute = order.kind == OrderKind::kCompute;
    text += (compute ? "compute " : "forget ") + std::to_string(order.id);
    for (std::uint32_t output : order.outputs) text += " " + std::to_string(output);
    if (!compute) text += order.kind == OrderKind::kForgetValue ? " forward" : " backward";
    text += "\n";
  }
  return text;
}

Result<IdVector<OpId, std::optional<std::uint32_t>>> blocks_in_file(const Graph& graph) {
  REGEN_ASSIGN(FilePlaces places, places_in_file(graph));
  return std::move(places.block);
}

Result<Schedule> schedule_from_plan(const Graph& graph, const Plan& plan) {
  REGEN_ASSIGN(const FilePlaces places, places_in_file(graph));
  const auto adds_up = [&](OpId op) { return !places.block[op].has_value(); };
  Schedule schedule;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (step.kind() == StepKind::kCompute) {
      if (adds_up(step.op())) continue;
      ScheduleOrder order{.id = *places.block[step.op()]};
      if (graph.phase(step.op()) == Phase::kBackward) {
        order.outputs.resize(graph.outputs(step.op()).size());
        std::iota(order.outputs.begin(), order.outputs.end(), 0);
      }
      schedule.push_back(std::move(order));
    } else if (step.kind() == StepKind::kRelease) {
      const TensorId t = step.tensor();
      const bool gradient = places.variable[t].valid();
      // A part that is added to another lives on in the sum.
      if (gradient && std::ranges::any_of(graph.consumers(t), adds_up)) continue;
      const TensorId variable = gradient ? places.variable[t] : t;
      schedule.push_back({.kind = gradient ? OrderKind::kForgetGradient : OrderKind::kForgetValue,
                          .id = static_cast<std::uint32_t>(variable.index())});
    } else {
      return bad_input("step " + std::to_string(i) + " (" + describe(graph, step) +
                       "): schedules of lower sets move nothing to the host");
    }
  }
  return schedule;
}

}  // namespace regen::published
