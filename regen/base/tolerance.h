// When two numbers count as the same. Costs are sums of thousands of doubles in different orders,
// and solutions of linear models are right up to the solver's tolerance (1e-7), so that equal plans
// differ in their last digits.
#pragma once

namespace regen {

// Relative to a cost; 1e4 times the rounding of a sum of 1e5 terms would still be below it. Plans
// that differ by less are equally good, and a bound that is so near to a cost proves it.
inline constexpr double kSameCost = 1e-9;

// Relative to a sum: its rounding. Where a search compares costs that were summed in one and the
// same way, or a bound must stay below what it sums, a smaller difference is none.
inline constexpr double kSummationError = 1e-12;

// Relative to the bytes of a budget: a linear model's solution that exceeds a memory row by less
// keeps it. Ten times the solver's tolerance.
inline constexpr double kMemoryViolation = 1e-6;

// In steps, where all costs are multiples of one step: a solver's objective that is nearer to a
// multiple stands for that multiple. Ten times the solver's tolerance.
inline constexpr double kStepError = 1e-6;

// Of a column between 0 and 1, or a sum of such columns: less than this is nothing.
inline constexpr double kZeroFraction = 1e-9;

// a is below b by more than rounding.
inline bool clearly_below(double a, double b) {
  return a < b * (1 - kSameCost);
}

// a is at most b, up to rounding.
inline bool at_most(double a, double b) {
  return a <= b * (1 + kSameCost);
}

}  // namespace regen
