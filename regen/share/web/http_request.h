// The head of a request by HTTP/1.1, from bytes of any origin. Far less is accepted than the standard allows: what a
// browser, curl and Prometheus send, and nothing that two readers could understand in two ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regen::share {

struct HttpRequest {
  std::string method;
  std::string path;                          // from / to the question mark, as sent
  std::vector<std::string> tokens = {};      // values of `token` in the query
  std::optional<std::int64_t> after = {};    // value of `after`
  std::optional<std::string> authorization;  // the field
  std::string host;
  bool has_body = false;
};

// Answers by their numbers in the standard.
enum class HttpStatus : std::uint16_t {
  kOk = 200,
  kBadRequest = 400,
  kForbidden = 403,
  kNotFound = 404,
  kNotAllowed = 405,
  kTooSlow = 408,
  kTargetTooLong = 414,
  kHeadTooLarge = 431,
  kVersion = 505,
};
std::string_view reason(HttpStatus status);

// Takes bytes until the head of one request is whole, or cannot become one. What follows the head is not looked at.
class HttpReader {
 public:
  static constexpr std::size_t kMostHead = 8192;
  static constexpr std::size_t kMostTarget = 2048;
  static constexpr std::size_t kMostFields = 64;

  // True once nothing more is needed. Takes no bytes after that.
  bool append(std::string_view bytes);
  // kOk: there is a request.
  HttpStatus status() const { return status_; }
  const HttpRequest& request() const { return request_; }

 private:
  HttpStatus read_start();
  HttpStatus read_head(std::string_view head);
  HttpStatus read_target(std::string_view target);
  HttpStatus read_field(std::string_view line);

  std::string buffer_;
  bool done_ = false;
  std::size_t fields_ = 0;
  bool has_host_ = false;
  HttpStatus status_ = HttpStatus::kOk;
  HttpRequest request_;
};

}  // namespace regen::share
