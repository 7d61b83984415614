#include "regen/published/lower_sets/format/schedule_run.h"

#include <algorithm>

namespace regen::published {
namespace {

class ScheduleExecution {
 public:
  ScheduleExecution(const LowerSetFile& file, const std::string& source)
      : file_(file),
        source_(source),
        made_forward_(file.variables.size(), 0),
        value_(file.variables.size(), 1),
        gradient_(file.variables.size(), 0),
        parts_(file.variables.size(), 0),
        runs_(file.blocks.size(), 0),
        done_(file.blocks.size()) {
    for (std::size_t i = 0; i < file.blocks.size(); ++i) {
      const LowerSetBlock& block = file.blocks[i];
      if (block.backward) {
        done_[i].assign(block.outputs.size(), 0);
        for (std::uint32_t id : block.outputs) ++parts_[id];
      } else {
        made_forward_[block.outputs[0]] = 1;
        value_[block.outputs[0]] = 0;
        result_.base_cost += lower_set_cost(block.type);
      }
    }
    missing_ = parts_;
  }

  Result<ScheduleRun> run(const Schedule& schedule);

 private:
  Status compute(const ScheduleOrder& order);
  Status run_forward(std::uint32_t id);
  Status run_backward(const ScheduleOrder& order);
  Status check_input(const LowerSetRead& read) const;
  Status forget(const ScheduleOrder& order);
  Status check_end() const;
  void count(std::uint32_t variable, bool gradient, int sign);
  Error error(const std::string& problem) const {
    return bad_input(source_ + ": line " + std::to_string(line_) + ": " + problem);
  }

  const LowerSetFile& file_;
  const std::string& source_;
  std::vector<char> made_forward_;       // by variable: some block makes it
  std::vector<char> value_;              // by variable: is its value there?
  std::vector<char> gradient_;           // by variable: is its gradient, or a part of it, there?
  std::vector<std::uint32_t> parts_;     // by variable: backward outputs that name it
  std::vector<std::uint32_t> missing_;   // of those, not made yet
  std::vector<std::uint32_t> runs_;      // by block
  std::vector<std::vector<char>> done_;  // by backward block and output
  std::size_t line_ = 0;
  Bytes live_ = 0;
  Bytes live_activations_ = 0;
  ScheduleRun result_;
};

std::string variable_name(std::uint32_t id) {
  return "variable " + std::to_string(id);
}

void ScheduleExecution::count(std::uint32_t variable, bool gradient, int sign) {
  const Bytes bytes = sign * file_.variables[variable].bytes;
  live_ += bytes;
  if (!gradient || made_forward_[variable]) live_activations_ += bytes;
}

Status ScheduleExecution::check_input(const LowerSetRead& read) const {
  if (read.role != LowerSetRole::kGradient) {
    if (value_[read.variable]) return {};
    return error("the value of " + variable_name(read.variable) + " is not there");
  }
  // No op makes the gradient of the loss: it is one.
  if (parts_[read.variable] == 0) return {};
  if (missing_[read.variable] > 0) {
    return error("the gradient of " + variable_name(read.variable) +
                 " is not whole: " + std::to_string(missing_[read.variable]) + " of " +
                 std::to_string(parts_[read.variable]) + " parts are missing");
  }
  if (gradient_[read.variable]) return {};
  return error("the gradient of " + variable_name(read.variable) + " is not there");
}

Status ScheduleExecution::run_forward(std::uint32_t id) {
  const LowerSetBlock& block = file_.blocks[id];
  const std::uint32_t output = block.outputs[0];
  if (++runs_[id] > 1) {
    ++result_.recomputed;
    result_.overhead_cost += lower_set_cost(block.type);
  }
  if (!value_[output]) count(output, /*gradient=*/false, 1);
  value_[output] = 1;
  return {};
}

Status ScheduleExecution::run_backward(const ScheduleOrder& order) {
  const LowerSetBlock& block = file_.blocks[order.id];
  // A block may have no gradient to make: that of a network input, in a graph without parameters.
  if (order.outputs.empty() && !block.outputs.empty()) {
    return error("compute " + std::to_string(order.id) +
                 " is a backward block, expected the places of the gradients to make");
  }
  for (std::uint32_t place : order.outputs) {
    if (place >= block.outputs.size()) {
      return error("output " + std::to_string(place) + " of block " + std::to_string(order.id) +
                   ", expected one below " + std::to_string(block.outputs.size()));
    }
    if (done_[order.id][place]) {
      return error("output " + std::to_string(place) + " of block " + std::to_string(order.id) +
                   " is made a second time and would be added twice");
    }
    done_[order.id][place] = 1;
    const std::uint32_t variable = block.outputs[place];
    --missing_[variable];
    if (!gradient_[variable]) count(variable, /*gradient=*/true, 1);
    gradient_[variable] = 1;
  }
  return {};
}

Status ScheduleExecution::compute(const ScheduleOrder& order) {
  if (order.id >= file_.blocks.size()) {
    return error("block " + std::to_string(order.id) + ", expected one below " +
                 std::to_string(file_.blocks.size()));
  }
  const LowerSetBlock& block = file_.blocks[order.id];
  if (!block.backward && !order.outputs.empty()) {
    return error("compute " + std::to_string(order.id) +
                 " is a forward block, expected no places after it");
  }
  for (const LowerSetRead& read : block.inputs) REGEN_TRY(check_input(read));
  return block.backward ? run_backward(order) : run_forward(order.id);
}

Status ScheduleExecution::forget(const ScheduleOrder& order) {
  const bool gradient = order.kind == OrderKind::kForgetGradient;
  const std::string what =
      std::string(gradient ? "the gradient" : "the value") + " of " + variable_name(order.id);
  if (order.id >= file_.variables.size()) {
    return error(variable_name(order.id) + ", expected one below " +
                 std::to_string(file_.variables.size()));
  }
  if (!made_forward_[order.id]) {
    return error(what + " may not be forgotten: it is an input or a parameter");
  }
  std::vector<char>& present = gradient ? gradient_ : value_;
  if (!present[order.id]) return error(what + " is not there");
  if (gradient && missing_[order.id] > 0 && missing_[order.id] < parts_[order.id]) {
    return error(what + " is forgotten before it is whole");
  }
  present[order.id] = 0;
  count(order.id, gradient, -1);
  return {};
}

Status ScheduleExecution::check_end() const {
  for (std::size_t i = 0; i < file_.blocks.size(); ++i) {
    const LowerSetBlock& block = file_.blocks[i];
    if (!block.backward && runs_[i] == 0) {
      return error("the schedule ends, but forward block " + std::to_string(i) + " never ran");
    }
    for (std::size_t k = 0; k < done_[i].size(); ++k) {
      const bool parameter = file_.variables[block.outputs[k]].name.starts_with('/');
      if (done_[i][k] || !parameter) continue;
      return error("the schedule ends, but output " + std::to_string(k) + " of block " +
                   std::to_string(i) + ", the gradient of a parameter, was never made");
    }
  }
  return {};
}

Result<ScheduleRun> ScheduleExecution::run(const Schedule& schedule) {
  for (const ScheduleOrder& order : schedule) {
    ++line_;
    REGEN_TRY(order.kind == OrderKind::kCompute ? compute(order) : forget(order));
    if (live_ > result_.peak_bytes) {
      result_.peak_bytes = live_;
      result_.peak_line = line_;
    }
    result_.activation_peak_bytes = std::max(result_.activation_peak_bytes, live_activations_);
  }
  REGEN_TRY(check_end());
  return result_;
}

}  // namespace

Result<ScheduleRun> run_schedule(const LowerSetFile& file, const Schedule& schedule,
                                 const std::string& source) {
  return ScheduleExecution(file, source).run(schedule);
}

}  // namespace regen::published
