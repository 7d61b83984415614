#include "regen/published/lower_sets/canonical_schedule.h"

#include <algorithm>

namespace regen::published {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

class CanonicalWriter {
 public:
  CanonicalWriter(const LowerSetFile& file, std::span<const std::uint32_t> order,
                  std::span<const std::uint32_t> chain_block);

  Schedule write();

 private:
  // What a chain does with a variable that some forward block makes.
  struct Variable {
    std::uint32_t maker = kNone;
    std::uint32_t block = kNone;       // of the chain
    std::uint32_t last_reader = 0;     // the highest block that reads it
    std::vector<std::uint32_t> reads;  // of its maker, only variables that are made too
    std::uint32_t first_read = kNone;  // the lowest and the highest block of these
    std::uint32_t last_read = 0;
    std::vector<std::uint32_t> readers;
    bool here = false;
    bool gradient_here = false;
  };

  std::uint32_t output(std::uint32_t function) const { return file_.blocks[function].outputs[0]; }
  // Is the gradient of this variable read when block `block` or a lower one is reversed?
  bool waits_for(const Variable& v, std::uint32_t block) const {
    return v.block > block && v.first_read <= block;
  }
  void compute(std::uint32_t function);
  void compute_backward(std::uint32_t function, std::uint32_t block);
  void forget(std::uint32_t variable, OrderKind kind);
  void run_forward();
  void reverse(std::uint32_t block);
  void forget_above(std::uint32_t block);

  const LowerSetFile& file_;
  std::span<const std::uint32_t> order_;
  std::uint32_t blocks_ = 0;
  std::vector<Variable> variables_;
  std::vector<std::vector<std::uint32_t>> functions_;  // by block of the chain, as they run
  std::vector<std::vector<std::uint32_t>> backwards_;  // by block: made there, last one first

  Schedule computes_;
  std::vector<Schedule> forgets_;  // by compute, after it
  // By variable: the last compute that touched its value, and its gradient.
  std::vector<std::size_t> touched_;
  std::vector<std::size_t> gradient_touched_;
};

CanonicalWriter::CanonicalWriter(const LowerSetFile& file, std::span<const std::uint32_t> order,
                                 std::span<const std::uint32_t> chain_block)
    : file_(file),
      order_(order),
      variables_(file.variables.size()),
      touched_(file.variables.size(), 0),
      gradient_touched_(file.variables.size(), 0) {
  for (std::uint32_t function : order) {
    Variable& v = variables_[output(function)];
    v.maker = function;
    v.block = chain_block[function];
    blocks_ = std::max(blocks_, v.block + 1);
    for (const LowerSetRead& read : file.blocks[function].inputs) {
      Variable& u = variables_[read.variable];
      if (u.maker == kNone) continue;
      v.reads.push_back(read.variable);
      v.first_read = std::min(v.first_read, u.block);
      v.last_read = std::max(v.last_read, u.block);
      u.readers.push_back(output(function));
      u.last_reader = std::max(u.last_reader, v.block);
    }
  }
  functions_.resize(blocks_);
  backwards_.resize(blocks_);
  for (std::uint32_t function : order) {
    functions_[variables_[output(function)].block].push_back(function);
  }
  for (auto function = order.rbegin(); function != order.rend(); ++function) {
    const Variable& v = variables_[output(*function)];
    std::vector<std::uint32_t> in;
    for (std::uint32_t read : v.reads) in.push_back(variables_[read].block);
    if (in.empty()) in.push_back(v.block);
    std::ranges::sort(in);
    in.erase(std::unique(in.begin(), in.end()), in.end());
    for (std::uint32_t block : in) backwards_[block].push_back(*function);
  }
}

void CanonicalWriter::compute(std::uint32_t function) {
  for (const LowerSetRead& read : file_.blocks[function].inputs) {
    touched_[read.variable] = computes_.size();
  }
  touched_[output(function)] = computes_.size();
  computes_.push_back({.id = function});
  forgets_.emplace_back();
}

// The gradients of what the function reads in this block; with the first of these, or where there
// is none, those of parameters and network inputs too.
void CanonicalWriter::compute_backward(std::uint32_t function, std::uint32_t block) {
  const Variable& v = variables_[output(function)];
  const bool first = v.reads.empty() || v.last_read == block;
  const auto twin = static_cast<std::uint32_t>(function + file_.blocks.size() / 2);
  const LowerSetBlock& backward = file_.blocks[twin];
  ScheduleOrder order{.id = twin};
  for (std::uint32_t i = 0; i < backward.outputs.size(); ++i) {
    const Variable& target = variables_[backward.outputs[i]];
    if (target.maker == kNone ? first : target.block == block) order.outputs.push_back(i);
  }
  if (order.outputs.empty()) return;
  const bool exception = reads_own_output(file_, function) && !v.here;
  if (exception) compute(function);
  for (const LowerSetRead& read : backward.inputs) {
    auto& touched = read.role == LowerSetRole::kGradient ? gradient_touched_ : touched_;
    touched[read.variable] = computes_.size();
  }
  for (std::uint32_t place : order.outputs) {
    gradient_touched_[backward.outputs[place]] = computes_.size();
    variables_[backward.outputs[place]].gradient_here = true;
  }
  computes_.push_back(std::move(order));
  forgets_.emplace_back();
  if (exception) forget(output(function), OrderKind::kForgetValue);
}

void CanonicalWriter::forget(std::uint32_t variable, OrderKind kind) {
  const bool value = kind == OrderKind::kForgetValue;
  forgets_[(value ? touched_ : gradient_touched_)[variable]].push_back(
      {.kind = kind, .id = variable});
}

void CanonicalWriter::run_forward() {
  for (const auto& functions : functions_) {
    for (std::uint32_t function : functions) compute(function);
    for (std::uint32_t function : functions) {
      Variable& v = variables_[output(function)];
      v.here = v.last_reader > v.block;
      if (!v.here) forget(output(function), OrderKind::kForgetValue);
    }
  }
}

void CanonicalWriter::reverse(std::uint32_t block) {
  for (std::uint32_t function : functions_[block]) {
    Variable& v = variables_[output(function)];
    if (!v.here) compute(function);
    v.here = true;
  }
  for (std::uint32_t function : backwards_[block]) compute_backward(function, block);
}

// When `block` is reversed: what lower blocks still need of it and of the blocks above it are
// gradients that some of their values wait for, and what the functions of these read.
void CanonicalWriter::forget_above(std::uint32_t block) {
  for (std::uint32_t function : order_) {
    Variable& v = variables_[output(function)];
    if (v.block < block) continue;
    const auto waits = [&](const Variable& reader) {
      return block > 0 && waits_for(reader, block - 1);
    };
    const auto waiting = [&](std::uint32_t reader) { return waits(variables_[reader]); };
    if (v.here && std::ranges::none_of(v.readers, waiting)) {
      forget(output(function), OrderKind::kForgetValue);
      v.here = false;
    }
    if (v.gradient_here && !waits(v)) {
      forget(output(function), OrderKind::kForgetGradient);
      v.gradient_here = false;
    }
  }
}

Schedule CanonicalWriter::write() {
  run_forward();
  for (std::uint32_t block = blocks_; block-- > 0;) {
    reverse(block);
    forget_above(block);
  }
  Schedule schedule;
  for (std::size_t i = 0; i < computes_.size(); ++i) {
    schedule.push_back(std::move(computes_[i]));
    schedule.insert(schedule.end(), forgets_[i].begin(), forgets_[i].end());
  }
  return schedule;
}

}  // namespace

bool reads_own_output(const LowerSetFile& file, std::uint32_t function) {
  const auto& reads = file.blocks[function + file.blocks.size() / 2].inputs;
  return std::ranges::any_of(reads, [&](const LowerSetRead& read) {
    return read.role == LowerSetRole::kOutput && read.variable == file.blocks[function].outputs[0];
  });
}

Schedule canonical_schedule(const LowerSetFile& file, std::span<const std::uint32_t> order,
                            std::span<const std::uint32_t> chain_block) {
  return CanonicalWriter(file, order, chain_block).write();
}

}  // namespace regen::published
