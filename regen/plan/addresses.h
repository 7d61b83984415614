// Gives every allocation of a plan its place in one arena.
#pragma once

#include <vector>

#include "regen/plan/pack/pack.h"
#include "regen/plan/plan.h"

namespace regen {

// The lifetimes of a plan's allocations in steps, in the order of Plan::addresses. An output that
// takes over an overwritten input prolongs the input's lifetime. The plan must be valid.
std::vector<Lifetime> allocation_lifetimes(const Graph& graph, const Plan& plan);

struct AddressedPlan {
  Plan plan;
  Packing packing;  // of allocation_lifetimes(); ratio() is the price of fixed addresses
};

// The valid plan with addresses. Fails when the options' capacity cannot be met.
Result<AddressedPlan> with_addresses(const Graph& graph, const Plan& plan,
                                     const PackOptions& options = {});

}  // namespace regen
