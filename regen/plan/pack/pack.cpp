#include "regen/plan/pack/pack.h"

#include <algorithm>
#include <limits>
#include <string>

#include "regen/plan/pack/pack_fit.h"
#include "regen/plan/pack/pack_problem.h"
#include "regen/plan/pack/pack_search.h"

namespace regen {
namespace {

Error bad_lifetime(std::size_t index, const std::string& problem) {
  return bad_input("lifetime " + std::to_string(index) + ": " + problem);
}

Status check_input(std::span<const Lifetime> lifetimes, const PackOptions& options) {
  if (options.alignment < 1 || options.alignment > kMaxBytes) {
    return bad_input("alignment " + std::to_string(options.alignment) + ", expected 1 to " +
                     std::to_string(kMaxBytes));
  }
  if (options.capacity && *options.capacity < 0) {
    return bad_input("capacity " + std::to_string(*options.capacity) + ", expected 0 or more");
  }
  constexpr Bytes kMaxTotal = std::numeric_limits<Bytes>::max() / 4;
  Bytes total = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& item = lifetimes[i];
    if (item.upper <= item.lower) {
      return bad_lifetime(i, "upper " + std::to_string(item.upper) +
                                 ", expected more than lower, which is " +
                                 std::to_string(item.lower));
    }
    if (item.size < 0 || item.size > kMaxBytes) {
      return bad_lifetime(
          i, "size " + std::to_string(item.size) + ", expected 0 to " + std::to_string(kMaxBytes));
    }
    total += item.size + options.alignment;
    if (total > kMaxTotal) {
      return bad_lifetime(i, "the sizes up to here sum to over " + std::to_string(kMaxTotal) +
                                 ", expected a smaller total");
    }
  }
  return {};
}

// Beyond this many items the search rarely succeeds, and its steps grow long.
constexpr std::size_t kMaxSearched = 2000;
// What one capacity gets at first when the lowest is sought.
constexpr std::int64_t kFirstWork = 20'000;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// Packs the parts of one problem. All heights are in units of the problem.
class Packer {
 public:
  Packer(const PackProblem& problem, const PackOptions& options, Effort& effort)
      : problem_(problem), options_(options), effort_(effort), bound_(problem.max_load) {}

  // Looks for any packing within the capacity.
  void fit_into(std::int64_t capacity) {
    fit_greedily(std::max(capacity, bound_));
    if (bound_ > capacity || !options_.exact) return;
    for (std::size_t i = 0; i < fits_.size(); ++i) {
      const bool small = problem_.parts[i].items.size() <= kMaxSearched;
      if (fits_[i].height > capacity && small) search(i, capacity, kNoLimit);
      if (bound_ > capacity) return;
    }
  }

  // Looks for the lowest packing. Parts that stay below another one are low enough.
  void minimise() {
    fit_greedily(bound_);
    if (!options_.exact) return;
    std::int64_t reached = 0;
    for (std::size_t i = 0; i < fits_.size(); ++i) {
      if (problem_.parts[i].items.size() <= kMaxSearched) lower(i, reached);
      reached = std::max(reached, fits_[i].height);
    }
  }

  const std::vector<Fit>& fits() const { return fits_; }
  std::int64_t bound() const { return bound_; }

 private:
  void fit_greedily(std::int64_t target) {
    for (const PackPart& part : problem_.parts) {
      fits_.push_back(greedy_fit(part, target, options_.improve, effort_));
    }
  }

  // Probes the bound first, because it is often reached, then halves what is left of the
  // heights; all that again with more work for each probe until nothing is left to gain.
  void lower(std::size_t part, std::int64_t reached) {
    const Fit& fit = fits_[part];
    for (std::int64_t work = kFirstWork; fit.height > std::max(bound_, reached);) {
      std::int64_t missed = -1;
      for (std::int64_t probe = std::max(bound_, reached); probe < fit.height;) {
        if (effort_.exhausted()) return;
        if (search(part, probe, work) == SearchOutcome::kLimit) missed = probe;
        const std::int64_t wanted = std::max(bound_, reached);
        probe = missed < wanted ? wanted
                                : missed + std::max<std::int64_t>(1, (fit.height - missed) / 2);
      }
      work = std::min(work, kNoLimit / 4) * 4;
    }
  }

  SearchOutcome search(std::size_t part, std::int64_t capacity, std::int64_t work) {
    PackSearch search(problem_.parts[part], capacity, options_, effort_);
    const SearchOutcome outcome = search.run(work);
    if (outcome == SearchOutcome::kRefuted) bound_ = std::max(bound_, search.lower_bound());
    if (outcome == SearchOutcome::kFound) {
      fits_[part] = make_fit(problem_.parts[part], search.offsets());
    }
    return outcome;
  }

  const PackProblem& problem_;
  const PackOptions& options_;
  Effort& effort_;
  std::vector<Fit> fits_;
  std::int64_t bound_;
};

}  // namespace

Result<Packing> pack(std::span<const Lifetime> lifetimes, const PackOptions& options) {
  REGEN_TRY(check_input(lifetimes, options));
  Effort effort(options.limits);
  const PackProblem problem = make_pack_problem(lifetimes, options.alignment, options.split);
  Packer packer(problem, options, effort);
  if (options.capacity) {
    packer.fit_into(*options.capacity / problem.unit);
  } else {
    packer.minimise();
  }
  Packing packing;
  packing.offsets.assign(lifetimes.size(), 0);
  packing.max_load = problem.max_load * problem.unit;
  packing.lower_bound = packer.bound() * problem.unit;
  for (std::size_t p = 0; p < problem.parts.size(); ++p) {
    const Fit& fit = packer.fits()[p];
    const auto& origin = problem.parts[p].origin;
    for (std::size_t i = 0; i < origin.size(); ++i) {
      packing.offsets[origin[i]] = fit.offsets[i] * problem.unit;
    }
    packing.height = std::max(packing.height, fit.height * problem.unit);
  }
  if (options.capacity && packing.height > *options.capacity) {
    const bool refuted = packing.lower_bound > *options.capacity;
    packing.status = refuted ? PackStatus::kInfeasible : PackStatus::kLimit;
  }
  packing.work = effort.work();
  packing.seconds = effort.seconds();
  return packing;
}

}  // namespace regen
