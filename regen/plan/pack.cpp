#include "regen/plan/pack.h"

#include <algorithm>
#include <limits>
#include <string>

#include "regen/plan/pack_fit.h"
#include "regen/plan/pack_problem.h"

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
      return bad_lifetime(i, "size " + std::to_string(item.size) + ", expected 0 to " +
                                 std::to_string(kMaxBytes));
    }
    total += item.size + options.alignment;
    if (total > kMaxTotal) {
      return bad_lifetime(i, "the sizes up to here sum to over " + std::to_string(kMaxTotal) +
                                 ", expected a smaller total");
    }
  }
  return {};
}

}  // namespace

Result<Packing> pack(std::span<const Lifetime> lifetimes, const PackOptions& options) {
  REGEN_TRY(check_input(lifetimes, options));
  Effort effort(options.limits);
  const PackProblem problem = make_pack_problem(lifetimes, options.alignment, options.split);
  Packing packing;
  packing.offsets.assign(lifetimes.size(), 0);
  packing.max_load = packing.lower_bound = problem.max_load * problem.unit;
  for (const PackPart& part : problem.parts) {
    const Fit fit = greedy_fit(part, problem.max_load, options.improve, effort);
    for (std::size_t i = 0; i < part.items.size(); ++i) {
      packing.offsets[part.origin[i]] = fit.offsets[i] * problem.unit;
    }
    packing.height = std::max(packing.height, fit.height * problem.unit);
  }
  if (options.capacity && packing.height > *options.capacity) {
    packing.status = packing.lower_bound > *options.capacity ? PackStatus::kInfeasible
                                                             : PackStatus::kLimit;
  }
  packing.work = effort.work();
  packing.seconds = effort.seconds();
  return packing;
}

}  // namespace regen
