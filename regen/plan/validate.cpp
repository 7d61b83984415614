#include "regen/plan/validate.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace regen {
namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

std::string count_bytes(Bytes bytes) {
  return format_grouped(bytes) + (bytes == 1 ? " byte" : " bytes");
}

// Names come from files, so they may hold anything; a message is one line all the same.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

struct TensorState {
  bool on_device = false;
  bool host_copy = false;
  bool drops_after_use = false;  // its last fetch is done: the host copy goes with the next use
  std::size_t left_at = kNever;  // the last step that took it from the device
  Bytes address = 0;
};

class Validator {
 public:
  Validator(const Graph& graph, const Plan& plan, const ValidationLimits& limits)
      : graph_(graph),
        plan_(plan),
        limits_(limits),
        tensors_(graph.num_tensors()),
        first_run_(graph.num_ops(), kNever),
        group_choice_(graph.num_ops(), kNever),
        mutators_(graph.num_tensors()),
        mutations_done_(graph.num_tensors(), 0) {}

  Result<Validation> run();

 private:
  void find_last_fetches();
  void list_mutators();

  Status check_step(const Step& step);
  Status check_subject(const Step& step) const;
  Status compute(const Step& step);
  Status offload(TensorId t);
  Status release(TensorId t);
  Status fetch(TensorId t);
  Status check_end() const;

  Status check_reads(VariantId variant) const;
  Status check_turn(OpId op, TensorId mutated, const char* role) const;
  Status check_rerun(OpId op) const;
  Status check_group(const Step& step);
  void count_mutations(OpId op);

  Status allocate_for(VariantId variant);
  void take_over(TensorId old, TensorId output);
  void leave_device(TensorId t);
  void drop_host_copy_after_use(TensorId t);

  // The first is for plans without addresses, the second for plans with them.
  Status use_device(Bytes allocated, Bytes workspace);
  Status place(TensorId owner, Bytes bytes);
  Status check_free(TensorId owner, Bytes begin, Bytes end) const;
  Status reach(Bytes planned_bytes);

  Error fail(const std::string& problem) const;
  std::string show(OpId op) const;
  std::string show(TensorId t) const;
  std::string show_owner(TensorId owner) const;
  std::string why_absent(TensorId t) const;

  struct Range {
    Bytes end = 0;
    TensorId owner;
  };

  const Graph& graph_;
  const Plan& plan_;
  const ValidationLimits& limits_;

  std::size_t now_ = 0;  // the step being checked
  IdVector<TensorId, TensorState> tensors_;
  IdVector<OpId, std::size_t> first_run_;
  std::vector<std::size_t> group_choice_;  // by choice group: the first step of a member
  // The ops that change a fixed tensor, ascending. They run in that order, so a count says
  // which of them have run.
  IdVector<TensorId, std::vector<OpId>> mutators_;
  IdVector<TensorId, std::size_t> mutations_done_;
  std::vector<bool> last_fetch_;  // by step: no further fetch before the next offload or the end

  Bytes live_bytes_ = 0;
  Bytes host_bytes_ = 0;
  Bytes planned_peak_ = -1;
  Validation result_;

  std::size_t next_address_ = 0;
  std::map<Bytes, Range> ranges_;  // by first byte; those of 0 bytes are left out
};

Error Validator::fail(const std::string& problem) const {
  return bad_input(one_line("step " + std::to_string(now_) + " (" +
                            describe(graph_, plan_.steps[now_]) + "): " + problem));
}

std::string Validator::show(OpId op) const {
  return "op " + std::to_string(op.index()) + " '" + graph_.name(op) + "'";
}

std::string Validator::show(TensorId t) const {
  return "tensor " + std::to_string(t.index()) + " '" + graph_.name(t) + "' (" +
         count_bytes(graph_.bytes(t)) + ")";
}

std::string Validator::show_owner(TensorId owner) const {
  return owner.valid() ? show(owner) : "the workspace";
}

std::string Validator::why_absent(TensorId t) const {
  const std::size_t step = tensors_[t].left_at;
  if (step == kNever) return "(no step so far makes it)";
  const bool released = plan_.steps[step].kind() == StepKind::kRelease;
  return (released ? "(released at step " : "(overwritten at step ") + std::to_string(step) + ")";
}

// Whether a fetch is the last from its host copy depends on what follows, so it is settled
// before the steps are checked, from the end backwards.
void Validator::find_last_fetches() {
  last_fetch_.assign(plan_.steps.size(), false);
  IdVector<TensorId, bool> fetched_later(graph_.num_tensors(), false);
  for (std::size_t i = plan_.steps.size(); i-- > 0;) {
    const Step& step = plan_.steps[i];
    if (step.kind() == StepKind::kCompute || step.tensor().index() >= graph_.num_tensors()) {
      continue;
    }
    if (step.kind() == StepKind::kOffload) fetched_later[step.tensor()] = false;
    if (step.kind() == StepKind::kFetch) {
      last_fetch_[i] = !fetched_later[step.tensor()];
      fetched_later[step.tensor()] = true;
    }
  }
}

void Validator::list_mutators() {
  for (OpId op : graph_.ops()) {
    for (TensorId t : graph_.mutates(op)) {
      std::vector<OpId>& list = mutators_[t];
      if (list.empty() || list.back() != op) list.push_back(op);
    }
  }
}

Result<Validation> Validator::run() {
  if (plan_.fingerprint != 0 && plan_.fingerprint != graph_.fingerprint()) {
    return bad_input(one_line("plan was made for another graph: its fingerprint is " +
                              hex(plan_.fingerprint) + ", that of graph '" + graph_.name() +
                              "' is " + hex(graph_.fingerprint()) +
                              ", expected a plan of this graph"));
  }
  find_last_fetches();
  list_mutators();
  for (now_ = 0; now_ < plan_.steps.size(); ++now_) REGEN_TRY(check_step(plan_.steps[now_]));
  REGEN_TRY(check_end());
  result_.activation_peak_bytes = std::max<Bytes>(planned_peak_, 0);
  result_.peak_bytes = graph_.fixed_bytes() + result_.activation_peak_bytes;
  return result_;
}

Status Validator::check_step(const Step& step) {
  REGEN_TRY(check_subject(step));
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
  return fail("unknown kind of step");
}

Status Validator::check_subject(const Step& step) const {
  if (step.kind() == StepKind::kCompute) {
    if (step.op().index() >= graph_.num_ops()) {
      return fail("unknown op, expected an id below " + std::to_string(graph_.num_ops()));
    }
    const std::size_t choices = graph_.variants(step.op()).size();
    if (step.choice() >= choices) {
      return fail("unknown variant " + std::to_string(step.choice()) + ", the op has " +
                  std::to_string(choices));
    }
    return {};
  }
  if (step.tensor().index() >= graph_.num_tensors()) {
    return fail("unknown tensor, expected an id below " + std::to_string(graph_.num_tensors()));
  }
  if (graph_.fixed(step.tensor())) {
    return fail(show(step.tensor()) + " is fixed (kind " +
                std::string(to_string(graph_.kind(step.tensor()))) +
                "), expected a planned tensor");
  }
  return {};
}

Status Validator::compute(const Step& step) {
  const OpId op = step.op();
  const VariantId variant = step.variant(graph_);
  REGEN_TRY(check_rerun(op));
  REGEN_TRY(check_group(step));
  REGEN_TRY(check_reads(variant));
  const TensorId old = graph_.overwrites(variant);
  if (old.valid() && tensors_[graph_.makes(variant)[0]].on_device) {
    return fail("overwrites " + show(old) + ", but its output " + show(graph_.makes(variant)[0]) +
                " is on the device already");
  }
  REGEN_TRY(allocate_for(variant));
  for (TensorId t : graph_.reads(variant)) drop_host_copy_after_use(t);
  if (old.valid()) take_over(old, graph_.makes(variant)[0]);
  count_mutations(op);
  if (first_run_[op] == kNever) first_run_[op] = now_;
  return {};
}

Status Validator::check_rerun(OpId op) const {
  if (first_run_[op] == kNever) return {};
  const std::string ran = show(op) + " ran at step " + std::to_string(first_run_[op]);
  if (!graph_.mutates(op).empty()) {
    return fail(ran + " and changes " + show(graph_.mutates(op)[0]) + ", so it runs exactly once");
  }
  if (!graph_.recomputable(op)) return fail(ran + " and is not recomputable");
  return {};
}

Status Validator::check_group(const Step& step) {
  const ChoiceGroupId group = graph_.choice_group(step.op());
  if (!group.valid()) return {};
  std::size_t& first = group_choice_[group.index()];
  if (first == kNever) first = now_;
  const Step& chosen = plan_.steps[first];
  if (chosen.choice() == step.choice()) return {};
  return fail("runs in variant " + std::to_string(step.choice()) + " of choice group " +
              std::to_string(group.index()) + ", expected variant " +
              std::to_string(chosen.choice()) + " as for " + show(chosen.op()) + " at step " +
              std::to_string(first));
}

Status Validator::check_reads(VariantId variant) const {
  const OpId op = graph_.op(variant);
  for (TensorId t : graph_.reads(variant)) {
    if (graph_.fixed(t)) {
      REGEN_TRY(check_turn(op, t, "reads "));
    } else if (!tensors_[t].on_device) {
      return fail("reads " + show(t) + ", which is not on the device " + why_absent(t));
    }
  }
  // An update reads what it changes, whether its inputs say so or not.
  for (TensorId t : graph_.mutates(op)) REGEN_TRY(check_turn(op, t, "changes "));
  return {};
}

// Ops see a mutated tensor as they would in the order of ids: after every update with a smaller
// id and before every update with a larger one.
Status Validator::check_turn(OpId op, TensorId mutated, const char* role) const {
  const std::vector<OpId>& mutators = mutators_[mutated];
  if (mutators.empty()) return {};
  const auto smaller = std::lower_bound(mutators.begin(), mutators.end(), op) - mutators.begin();
  const auto due = static_cast<std::size_t>(smaller);
  const std::size_t done = mutations_done_[mutated];
  if (due > done) {
    return fail(role + show(mutated) + " before " + show(mutators[done]) + " has changed it");
  }
  if (due < done) {
    return fail(role + show(mutated) + " after " + show(mutators[due]) +
                " has changed it at step " + std::to_string(first_run_[mutators[due]]));
  }
  return {};
}

void Validator::count_mutations(OpId op) {
  for (TensorId t : graph_.mutates(op)) {
    const std::size_t done = mutations_done_[t];
    // A tensor named twice by one op is changed once.
    if (done < mutators_[t].size() && mutators_[t][done] == op) ++mutations_done_[t];
  }
}

Status Validator::allocate_for(VariantId variant) {
  const auto makes = graph_.makes(variant);
  const bool in_place = graph_.overwrites(variant).valid();
  const Bytes workspace = graph_.workspace(variant);
  Bytes allocated = 0;
  for (std::size_t i = 0; i < makes.size(); ++i) {
    TensorState& state = tensors_[makes[i]];
    if (state.on_device || (in_place && i == 0)) continue;
    state.on_device = true;
    allocated += graph_.bytes(makes[i]);
    if (plan_.addresses) REGEN_TRY(place(makes[i], graph_.bytes(makes[i])));
  }
  if (plan_.addresses) {
    if (workspace > 0) REGEN_TRY(place(TensorId::none(), workspace));
    live_bytes_ += allocated;
    return {};
  }
  return use_device(allocated, workspace);
}

void Validator::take_over(TensorId old, TensorId output) {
  const Bytes address = tensors_[old].address;
  leave_device(old);
  tensors_[output].on_device = true;
  tensors_[output].address = address;
  live_bytes_ += graph_.bytes(output);
  if (plan_.addresses && graph_.bytes(output) > 0) {
    ranges_[address] = {address + graph_.bytes(output), output};
  }
}

void Validator::leave_device(TensorId t) {
  tensors_[t].on_device = false;
  tensors_[t].left_at = now_;
  live_bytes_ -= graph_.bytes(t);
  if (plan_.addresses && graph_.bytes(t) > 0) ranges_.erase(tensors_[t].address);
}

void Validator::drop_host_copy_after_use(TensorId t) {
  TensorState& state = tensors_[t];
  if (!state.drops_after_use) return;
  state.drops_after_use = false;
  state.host_copy = false;
  host_bytes_ -= graph_.bytes(t);
}

Status Validator::offload(TensorId t) {
  TensorState& state = tensors_[t];
  if (!state.on_device) {
    return fail(show(t) + " is not on the device " + why_absent(t));
  }
  if (state.host_copy) return fail(show(t) + " has a host copy already");
  state.host_copy = true;
  host_bytes_ += graph_.bytes(t);
  result_.host_peak_bytes = std::max(result_.host_peak_bytes, host_bytes_);
  if (limits_.host_budget && host_bytes_ > *limits_.host_budget) {
    return fail("host copies take " + count_bytes(host_bytes_) + " with " + show(t) + ", " +
                count_bytes(host_bytes_ - *limits_.host_budget) + " over the host budget of " +
                count_bytes(*limits_.host_budget));
  }
  return {};
}

Status Validator::release(TensorId t) {
  if (!tensors_[t].on_device) {
    return fail(show(t) + " is not on the device " + why_absent(t));
  }
  leave_device(t);
  drop_host_copy_after_use(t);
  return {};
}

Status Validator::fetch(TensorId t) {
  TensorState& state = tensors_[t];
  if (state.on_device) return fail(show(t) + " is on the device already");
  if (!state.host_copy) return fail(show(t) + " has no host copy");
  state.on_device = true;
  state.drops_after_use = last_fetch_[now_];
  if (!plan_.addresses) return use_device(graph_.bytes(t), 0);
  live_bytes_ += graph_.bytes(t);
  return place(t, graph_.bytes(t));
}

Status Validator::use_device(Bytes allocated, Bytes workspace) {
  live_bytes_ += allocated;
  return reach(live_bytes_ + workspace);
}

Status Validator::reach(Bytes planned_bytes) {
  if (planned_bytes > planned_peak_) {
    planned_peak_ = planned_bytes;
    result_.peak_step = now_;
  }
  const Bytes total = graph_.fixed_bytes() + planned_bytes;
  if (!limits_.budget || total <= *limits_.budget) return {};
  return fail("takes " + count_bytes(total) + " (" + format_grouped(graph_.fixed_bytes()) +
              " of them fixed), " + count_bytes(total - *limits_.budget) + " over the budget of " +
              count_bytes(*limits_.budget));
}

Status Validator::place(TensorId owner, Bytes bytes) {
  const std::vector<Bytes>& addresses = *plan_.addresses;
  if (next_address_ >= addresses.size()) {
    return fail(show_owner(owner) + " has no address: the plan has only " +
                std::to_string(addresses.size()));
  }
  const Bytes begin = addresses[next_address_++];
  if (begin < 0 || begin > kMaxBytes) {
    return fail("address " + std::to_string(begin) + " of " + show_owner(owner) +
                " is out of range, expected 0 to " + std::to_string(kMaxBytes));
  }
  if (owner.valid()) tensors_[owner].address = begin;
  if (bytes > 0) {
    REGEN_TRY(check_free(owner, begin, begin + bytes));
    // A workspace is the last range of its step and gone after it, so it need not be kept.
    if (owner.valid()) ranges_[begin] = {begin + bytes, owner};
  }
  return reach(begin + bytes);
}

Status Validator::check_free(TensorId owner, Bytes begin, Bytes end) const {
  // The ranges in use are disjoint: only the last one that starts before `end` can overlap.
  auto found = ranges_.lower_bound(end);
  if (found == ranges_.begin()) return {};
  --found;
  if (found->second.end <= begin) return {};
  const auto span = [](Bytes from, Bytes to) {
    return " at [" + std::to_string(from) + ", " + std::to_string(to) + ")";
  };
  return fail(show_owner(owner) + span(begin, end) + " overlaps " + show(found->second.owner) +
              span(found->first, found->second.end));
}

Status Validator::check_end() const {
  const std::string where = "end of plan (" + std::to_string(plan_.steps.size()) + " steps): ";
  for (OpId op : graph_.ops()) {
    if (first_run_[op] == kNever) return bad_input(one_line(where + show(op) + " never runs"));
  }
  for (TensorId t : graph_.tensors()) {
    if (graph_.kind(t) == TensorKind::kOutput && !tensors_[t].on_device) {
      return bad_input(
          one_line(where + "output " + show(t) + " is not on the device " + why_absent(t)));
    }
  }
  if (plan_.addresses && next_address_ != plan_.addresses->size()) {
    return bad_input(where + "the steps make " + std::to_string(next_address_) +
                     " allocations, but the plan has " + std::to_string(plan_.addresses->size()) +
                     " addresses");
  }
  return {};
}

}  // namespace

Result<Validation> validate(const Graph& graph, const Plan& plan, const ValidationLimits& limits) {
  return Validator(graph, plan, limits).run();
}

}  // namespace regen
