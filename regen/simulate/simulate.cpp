#include "regen/simulate/simulate.h"

#include <algorithm>

#include "regen/simulate/copy_engines.h"

namespace regen {
namespace {

constexpr CopyEngines::Ticket kNoCopy = -1;

struct TensorState {
  Bytes bytes = 0;
  CopyEngines::Ticket offload = kNoCopy;  // under way, or ended and not yet waited for
  CopyEngines::Ticket fetch = kNoCopy;
  std::uint32_t fetches_left = 0;  // of the present host copy
  bool on_device = false;
  bool host_copy = false;
  bool fixed = false;
};

class Simulator {
 public:
  Simulator(const Graph& graph, const Plan& plan, const SimulateOptions& options)
      : graph_(graph),
        plan_(plan),
        options_(options),
        engines_(options.link),
        tensors_(graph.num_tensors()),
        runs_(graph.num_ops(), 0) {
    for (TensorId t : graph.tensors()) {
      tensors_[t].bytes = graph.bytes(t);
      tensors_[t].fixed = tensors_[t].on_device = graph.fixed(t);
    }
  }

  Result<Simulation> run() {
    REGEN_TRY(count_fetches());
    if (options_.record) result_.records.resize(plan_.steps.size());
    for (index_ = 0; index_ < plan_.steps.size(); ++index_) {
      during_ = live_;
      host_drop_ = 0;
      if (!run_step(plan_.steps[index_])) return error();
      finish_step();
    }
    if (plan_.addresses && next_address_ != plan_.addresses->size()) {
      return bad_input("plan has " + std::to_string(plan_.addresses->size()) +
                       " addresses, expected " + std::to_string(next_address_) +
                       ", one for each allocation");
    }
    finish();
    return std::move(result_);
  }

 private:
  bool run_step(const Step& step) {
    switch (step.kind()) {
      case StepKind::kCompute:
        return compute(step);
      case StepKind::kOffload:
        return offload(step.tensor());
      case StepKind::kRelease:
        return release(step.tensor());
      case StepKind::kFetch:
        return fetch(step.tensor());
    }
    return false;
  }

  // How often each host copy will be fetched, found from the end of the list.
  Status count_fetches() {
    std::vector<std::uint32_t> pending;
    for (std::size_t i = plan_.steps.size(); i-- > 0;) {
      const Step& step = plan_.steps[i];
      if (step.kind() != StepKind::kOffload && step.kind() != StepKind::kFetch) continue;
      if (step.tensor().index() >= graph_.num_tensors()) continue;  // refused when it is reached
      if (!options_.link.can_move()) {
        return bad_input("step " + std::to_string(i) + " (" + describe(graph_, step) +
                         ") moves a tensor, but the device has no link to the host, expected one "
                         "that has (--device)");
      }
      if (pending.empty()) pending.assign(graph_.num_tensors(), 0);
      std::uint32_t& count = pending[step.tensor().index()];
      if (step.kind() == StepKind::kFetch) {
        ++count;
      } else {
        fetches_of_offloads_.push_back(count);
        count = 0;
      }
    }
    return {};
  }

  bool compute(const Step& step) {
    const OpId op = step.op();
    if (op.index() >= graph_.num_ops()) return refuse("there is no such op");
    if (step.choice() >= graph_.variants(op).size()) return refuse("there is no such variant");
    const VariantId variant = step.variant(graph_);
    double start = clock_;
    for (TensorId t : graph_.reads(variant)) {
      TensorState& state = tensors_[t];
      if (!state.on_device) return refuse_absent(t);
      if (state.fetch != kNoCopy) start = std::max(start, wait_for_fetch(state));
    }
    const TensorId overwritten = graph_.overwrites(variant);
    if (overwritten.valid()) {
      TensorState& old = tensors_[overwritten];
      if (tensors_[graph_.makes(variant)[0]].on_device)
        return refuse("its output is there already");
      if (old.offload != kNoCopy) start = std::max(start, engines_.finish(old.offload));
      old.offload = kNoCopy;
    }
    make_outputs(variant, overwritten);
    during_ = live_ + graph_.workspace(variant);
    if (graph_.workspace(variant) > 0) take_address(graph_.workspace(variant));
    if (overwritten.valid()) take_over(overwritten, graph_.makes(variant)[0]);
    const bool rerun = runs_[op]++ > 0;
    result_.recomputed += rerun ? 1 : 0;
    const double cost = rerun ? graph_.rerun_cost(variant) : graph_.cost(variant);
    result_.compute_cost += cost;
    result_.stall += start - clock_;
    clock_ = start + cost;
    record(start, clock_);
    return true;
  }

  void make_outputs(VariantId variant, TensorId overwritten) {
    const auto makes = graph_.makes(variant);
    for (std::size_t i = overwritten.valid() ? 1 : 0; i < makes.size(); ++i) {
      TensorState& made = tensors_[makes[i]];
      if (made.on_device) continue;
      made.on_device = true;
      live_ += made.bytes;
      take_address(made.bytes);
    }
  }

  void take_over(TensorId overwritten, TensorId output) {
    tensors_[overwritten].on_device = false;
    tensors_[output].on_device = true;
    live_ += tensors_[output].bytes - tensors_[overwritten].bytes;
  }

  bool offload(TensorId t) {
    if (!check_planned(t)) return false;
    TensorState& state = tensors_[t];
    if (!state.on_device) return refuse_absent(t);
    if (state.host_copy) return refuse("it has a host copy already");
    state.host_copy = true;
    state.fetches_left = fetches_of_offloads_.back();
    fetches_of_offloads_.pop_back();
    host_ += state.bytes;
    result_.offloaded_bytes += state.bytes;
    state.offload = engines_.join(Direction::kToHost, state.bytes, clock_);
    remember(state.offload);
    return true;
  }

  bool fetch(TensorId t) {
    if (!check_planned(t)) return false;
    TensorState& state = tensors_[t];
    if (state.on_device) return refuse("it is on the device already");
    if (!state.host_copy) return refuse("it has no host copy");
    state.on_device = true;
    --state.fetches_left;
    live_ += state.bytes;
    during_ = live_;
    take_address(state.bytes);
    result_.fetched_bytes += state.bytes;
    state.fetch = engines_.join(Direction::kToDevice, state.bytes, clock_);
    remember(state.fetch);
    return true;
  }

  bool release(TensorId t) {
    if (!check_planned(t)) return false;
    TensorState& state = tensors_[t];
    if (!state.on_device) return refuse_absent(t);
    double done = clock_;
    if (state.offload != kNoCopy) done = std::max(done, engines_.finish(state.offload));
    state.offload = kNoCopy;
    if (state.fetch != kNoCopy) done = std::max(done, wait_for_fetch(state));
    result_.stall += done - clock_;
    clock_ = done;
    state.on_device = false;
    live_ -= state.bytes;
    during_ = live_;
    record(clock_, clock_);
    return true;
  }

  double wait_for_fetch(TensorState& state) {
    const double end = engines_.finish(state.fetch);
    state.fetch = kNoCopy;
    if (state.fetches_left == 0) {
      state.host_copy = false;
      host_drop_ += state.bytes;  // counted up to and including this step
    }
    return end;
  }

  void take_address(Bytes bytes) {
    if (!plan_.addresses) return;
    if (next_address_ < plan_.addresses->size()) {
      highest_ = std::max(highest_, (*plan_.addresses)[next_address_] + bytes);
    }
    ++next_address_;
  }

  void finish_step() {
    if (during_ > peak_) {
      peak_ = during_;
      result_.peak_step = index_;
    }
    result_.host_peak_bytes = std::max(result_.host_peak_bytes, host_);
    if (options_.record) {
      result_.records[index_].device_bytes = graph_.fixed_bytes() + during_;
      result_.records[index_].host_bytes = host_;
    }
    host_ -= host_drop_;
  }

  void finish() {
    result_.cost = std::max(clock_, engines_.drain());
    result_.activation_peak_bytes = plan_.addresses ? highest_ : peak_;
    result_.peak_bytes = graph_.fixed_bytes() + result_.activation_peak_bytes;
    if (graph_.base_cost() > 0) result_.overhead = result_.cost / graph_.base_cost() - 1;
    for (const auto& [step, ticket] : copies_) {
      result_.records[step].start = engines_.start(ticket);
      result_.records[step].end = engines_.end(ticket);
    }
  }

  void record(double start, double end) {
    if (!options_.record) return;
    result_.records[index_].start = start;
    result_.records[index_].end = end;
  }

  void remember(CopyEngines::Ticket ticket) {
    if (options_.record) copies_.emplace_back(index_, ticket);
  }

  bool check_planned(TensorId t) {
    if (t.index() >= graph_.num_tensors()) return refuse("there is no such tensor");
    if (tensors_[t].fixed) return refuse("it is a fixed tensor, which never moves");
    return true;
  }

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool refuse_absent(TensorId t) {
    return refuse("tensor " + std::to_string(t.index()) + " '" + graph_.name(t) +
                  "' is not on the device");
  }
  Error error() const {
    return bad_input("step " + std::to_string(index_) + " (" +
                     describe(graph_, plan_.steps[index_]) + "): " + reason_);
  }

  const Graph& graph_;
  const Plan& plan_;
  const SimulateOptions& options_;
  CopyEngines engines_;
  IdVector<TensorId, TensorState> tensors_;
  IdVector<OpId, std::uint32_t> runs_;
  std::vector<std::uint32_t> fetches_of_offloads_;  // of the next offload, at the back
  std::vector<std::pair<std::size_t, CopyEngines::Ticket>> copies_;
  Simulation result_;
  std::string reason_;
  double clock_ = 0;
  Bytes live_ = 0;
  Bytes during_ = 0;
  Bytes peak_ = 0;
  Bytes host_ = 0;
  Bytes host_drop_ = 0;
  Bytes highest_ = 0;
  std::size_t next_address_ = 0;
  std::size_t index_ = 0;
};

}  // namespace

Result<Simulation> simulate(const Graph& graph, const Plan& plan, const SimulateOptions& options) {
  return Simulator(graph, plan, options).run();
}

}  // namespace regen
