// What a function returns when it can fail: a value, or an error whose message
// names what was wrong, where, the offending value and what was expected.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace regen {

// Each code is one exit status of the command line (see exit_status).
enum class ErrorCode {
  kBadInput,    // the caller's data or usage is wrong
  kInfeasible,  // proven: no plan exists under the stated limits
  kLimit,       // a limit was reached before an answer was found
  kMissing,     // a program or library that the request needs is not installed
};

struct Error {
  ErrorCode code = ErrorCode::kBadInput;
  std::string message;

  bool operator==(const Error&) const = default;
};

inline Error bad_input(std::string message) {
  return {ErrorCode::kBadInput, std::move(message)};
}
inline Error infeasible(std::string message) {
  return {ErrorCode::kInfeasible, std::move(message)};
}
inline Error limit_reached(std::string message) {
  return {ErrorCode::kLimit, std::move(message)};
}
inline Error missing(std::string message) {
  return {ErrorCode::kMissing, std::move(message)};
}

// 1 infeasible, 2 bad usage or input (or a missing program), 3 limit reached.
int exit_status(ErrorCode code);

// A value of type T or an Error. Asking for the absent side aborts: that is a
// bug of the caller, never the user's.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(implicit)
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(implicit)

  bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return get<0>(); }
  const T& value() const& { return get<0>(); }
  T&& value() && { return std::move(get<0>()); }
  const Error& error() const { return get<1>(); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  template <std::size_t I>
  auto& get() {
    if (content_.index() != I) std::abort();
    return *std::get_if<I>(&content_);
  }
  template <std::size_t I>
  const auto& get() const {
    if (content_.index() != I) std::abort();
    return *std::get_if<I>(&content_);
  }

  std::variant<T, Error> content_;
};

// Success, or an Error: for functions that return nothing else.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT(implicit)

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    if (!failed_) std::abort();
    return error_;
  }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace regen

// Leaves the enclosing function with the error of `expression` if it failed.
#define REGEN_TRY(expression)                                                                 \
  do {                                                                                        \
    if (auto regen_status_ = (expression); !regen_status_.ok()) return regen_status_.error(); \
  } while (false)

#define REGEN_CONCAT_INNER(a, b) a##b
#define REGEN_CONCAT(a, b) REGEN_CONCAT_INNER(a, b)

// Declares `target` from the value of `expression`, or leaves with its error.
#define REGEN_ASSIGN(target, expression) \
  REGEN_ASSIGN_IMPL(REGEN_CONCAT(regen_result_, __LINE__), target, expression)
#define REGEN_ASSIGN_IMPL(result, target, expression) \
  auto result = (expression);                         \
  if (!result.ok()) return result.error();            \
  target = std::move(result).value()
