// Errors of regen as exceptions, which become regen.BudgetError or regen.RegenError in Python.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "regen/base/result.h"
#include "regen/base/utf8.h"

namespace regen {

struct BudgetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct RegenError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void raise(const Error& error) {
  // A name of a file, or a cut through one, may be no text that Python accepts.
  const std::string message = as_utf8(error.message);
  const bool budget = error.code == ErrorCode::kInfeasible || error.code == ErrorCode::kLimit;
  if (budget) throw BudgetError(message);
  throw RegenError(message);
}

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(result).value();
}

inline void check(const Status& status) {
  if (!status.ok()) raise(status.error());
}

}  // namespace regen
