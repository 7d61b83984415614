#include "regen/execute/record/algorithm_search.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>

namespace regen::execute {
namespace {

bool is_scratch(const CallAllocation& a) {
  return a.death != CallAllocation::kForever;
}

// Of each result's allocation, its number among those that outlive the call: alternatives differ
// in what lies between them.
std::vector<std::size_t> result_numbers(const CallRecord& record) {
  std::vector<std::size_t> number(record.allocations.size(), 0);
  std::size_t next = 0;
  for (std::size_t i = 0; i < number.size(); ++i) {
    if (!is_scratch(record.allocations[i])) number[i] = next++;
  }
  constexpr std::size_t kNoBytes = SIZE_MAX;
  std::vector<std::size_t> numbers;
  for (const ResultLayout& result : record.results) {
    if (result.source != ResultSource::kAllocation) {
      numbers.push_back(result.index);
    } else {
      numbers.push_back(result.index < number.size() ? number[result.index] : kNoBytes);
    }
  }
  return numbers;
}

// Whether both leave the same results behind, whatever they did in between.
bool same_results(const CallRecord& a, const CallRecord& b) {
  if (a.results.size() != b.results.size() || result_numbers(a) != result_numbers(b)) return false;
  const auto sizes = [](const CallRecord& record) {
    std::vector<Bytes> list;
    for (const CallAllocation& allocation : record.allocations) {
      if (!is_scratch(allocation)) list.push_back(allocation.bytes);
    }
    return list;
  };
  if (sizes(a) != sizes(b)) return false;
  for (std::size_t i = 0; i < a.results.size(); ++i) {
    ResultLayout other = b.results[i];
    other.index = a.results[i].index;
    if (other != a.results[i]) return false;
  }
  return true;
}

class Search {
 public:
  Search(const RepeatableCall& call, ExecutionDevice& device) : call_(call), device_(device) {}

  Status start() {
    call_.run();  // libraries set themselves up on first use
    REGEN_ASSIGN(record_, observe({.empty_requests = true}));
    record_.seconds = call_.time();
    record_.alternatives.emplace();
    for (const CallAllocation& a : record_.allocations) {
      if (!is_scratch(a)) results_.push_back(a.bytes);
    }
    return {};
  }

  Status lower(const SearchLimits& limits) {
    std::vector<CallAlternative>& found = *record_.alternatives;
    while (found.size() < limits.most_alternatives) {
      const auto& now = found.empty() ? record_.allocations : found.back().allocations;
      const Bytes largest = largest_scratch(now);
      if (largest < limits.least_scratch) break;
      // The last one that is allowed had better be the smallest there is.
      const bool last = found.size() + 1 == limits.most_alternatives;
      if (last) {
        REGEN_ASSIGN(const bool answered, try_cap(limits.least_scratch - 1));
        if (answered) break;
      }
      REGEN_ASSIGN(const bool answered, try_cap(largest - 1));
      if (!answered) break;
    }
    return {};
  }

  // Whether the call answers a cap with another way to give the same results.
  Result<bool> try_cap(Bytes cap) {
    REGEN_ASSIGN(const std::optional<CallRecord> capped, observe_capped(cap));
    if (!capped || !same_results(record_, *capped)) return false;
    // What it has chosen it must remember, or every later call would have to be refused again.
    REGEN_ASSIGN(const CallRecord again, observe({.empty_requests = true}));
    if (again.allocations != capped->allocations) return false;
    record_.alternatives->push_back({cap, call_.time(), again.allocations});
    return true;
  }

  CallRecord take() { return std::move(record_); }

 private:
  Result<CallRecord> observe(RecordingRules rules) {
    REGEN_ASSIGN(RecordingScope scope, RecordingScope::enter(device_.torch_device()));
    scope.start(std::move(rules));
    CallRecord record;
    const std::vector<at::Tensor> tensors = call_.run();
    call_.describe(tensors, scope.stop(), record);
    return record;
  }

  // Nothing if the call cannot do with so little.
  Result<std::optional<CallRecord>> observe_capped(Bytes cap) {
    try {
      REGEN_ASSIGN(CallRecord record,
                   observe({.empty_requests = true, .cap = cap, .results = results_}));
      return std::optional(std::move(record));
    } catch (const std::exception&) {
      device_.synchronize();
      return std::optional<CallRecord>();
    }
  }

  const RepeatableCall& call_;
  ExecutionDevice& device_;
  CallRecord record_;
  std::vector<Bytes> results_;  // sizes of what outlives the call
};

// On a thread for which libraries remember nothing.
template <typename Work>
Status run_search(ExecutionDevice& device, const Work& work) {
  Status status;
  device.run_aside([&] { status = work(); });
  return status;
}

// Nothing if the call does not answer all of them.
Result<std::optional<CallRecord>> follow_caps(const RepeatableCall& call,
                                              const std::vector<Bytes>& caps,
                                              ExecutionDevice& device) {
  Search search(call, device);
  bool all = true;
  const auto follow = [&]() -> Status {
    REGEN_TRY(search.start());
    for (std::size_t i = 0; i < caps.size() && all; ++i) {
      REGEN_ASSIGN(all, search.try_cap(caps[i]));
    }
    return {};
  };
  REGEN_TRY(run_search(device, follow));
  if (!all) return std::optional<CallRecord>();
  return std::optional(search.take());
}

void drop_dominated(CallRecord& record) {
  std::vector<CallAlternative>& all = *record.alternatives;
  const auto beaten = [&](const CallAlternative& a) {
    const Bytes bytes = scratch_bytes(a.allocations);
    if (record.seconds <= a.seconds && scratch_bytes(record.allocations) <= bytes) return true;
    return std::any_of(all.begin(), all.end(), [&](const CallAlternative& b) {
      // Of two equals the later one, with the lower cap, stays.
      return &a != &b && b.seconds <= a.seconds &&
             std::pair(scratch_bytes(b.allocations), b.cap) < std::pair(bytes, a.cap);
    });
  };
  std::vector<CallAlternative> kept;
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept),
               [&](const CallAlternative& a) { return !beaten(a); });
  all = std::move(kept);
}

}  // namespace

Bytes scratch_bytes(const std::vector<CallAllocation>& allocations) {
  std::map<std::int64_t, Bytes> change;  // by moment
  for (const CallAllocation& a : allocations) {
    if (!is_scratch(a)) continue;
    change[a.birth] += a.bytes;
    change[a.death] -= a.bytes;
  }
  Bytes now = 0;
  Bytes most = 0;
  for (const auto& [moment, bytes] : change) most = std::max(most, now += bytes);
  return most;
}

Bytes largest_scratch(const std::vector<CallAllocation>& allocations) {
  Bytes largest = 0;
  for (const CallAllocation& a : allocations) {
    if (is_scratch(a)) largest = std::max(largest, a.bytes);
  }
  return largest;
}

Result<CallRecord> search_algorithms(const RepeatableCall& call, ExecutionDevice& device,
                                     const SearchLimits& limits, const std::vector<Bytes>* caps) {
  if (caps != nullptr) {
    REGEN_ASSIGN(std::optional<CallRecord> followed, follow_caps(call, *caps, device));
    if (followed) return std::move(*followed);
  }
  Search search(call, device);
  const auto lower = [&]() -> Status {
    REGEN_TRY(search.start());
    return search.lower(limits);
  };
  REGEN_TRY(run_search(device, lower));
  CallRecord record = search.take();
  drop_dominated(record);
  return record;
}

}  // namespace regen::execute
