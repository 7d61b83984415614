#include "regen/share/web/http_request.h"

#include <algorithm>
#include <utility>

#include "regen/base/units.h"

namespace regen::share {
namespace {

using enum HttpStatus;

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr std::size_t kMostMethod = 16;

bool is_token_character(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_character);
}

bool is_visible(char c) {
  return c > ' ' && c < 127;
}

bool is_field_character(char c) {
  return static_cast<unsigned char>(c) >= ' ' ? c != 127 : c == '\t';
}

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string_view reason(HttpStatus status) {
  switch (status) {
    case kOk:
      return "OK";
    case kBadRequest:
      return "Bad Request";
    case kForbidden:
      return "Forbidden";
    case kNotFound:
      return "Not Found";
    case kNotAllowed:
      return "Method Not Allowed";
    case kTooSlow:
      return "Request Timeout";
    case kTargetTooLong:
      return "URI Too Long";
    case kHeadTooLarge:
      return "Request Header Fields Too Large";
    case kVersion:
      return "HTTP Version Not Supported";
  }
  return "Bad Request";
}

bool HttpReader::append(std::string_view bytes) {
  if (done_) return true;
  const std::size_t before = buffer_.size();
  buffer_ += bytes.substr(0, kMostHead + 1 - before);
  // Only what is new, and what it may complete.
  const std::size_t looked = before < kHeadEnd.size() ? 0 : before - kHeadEnd.size() + 1;
  const std::size_t end = buffer_.find(kHeadEnd, looked);
  if (end != std::string::npos && end + kHeadEnd.size() <= kMostHead) {
    status_ = read_head(std::string_view(buffer_).substr(0, end));
    done_ = true;
  } else {
    status_ = read_start();
    if (status_ == kOk && buffer_.size() > kMostHead) status_ = kHeadTooLarge;
    done_ = status_ != kOk;
  }
  if (done_) buffer_ = {};
  return done_;
}

// What is wrong with the first line is said before it is whole.
HttpStatus HttpReader::read_start() {
  const std::string_view line = std::string_view(buffer_).substr(0, buffer_.find(kLineEnd));
  const std::string_view method = line.substr(0, line.find(' '));
  if (method.size() > kMostMethod || !std::all_of(method.begin(), method.end(), is_upper)) {
    return kBadRequest;
  }
  return line.size() > kMostTarget + kMostMethod + 16 ? kTargetTooLong : kOk;
}

HttpStatus HttpReader::read_head(std::string_view head) {
  if (const HttpStatus start = read_start(); start != kOk) return start;
  const std::size_t first_end = std::min(head.find(kLineEnd), head.size());
  const std::string_view line = head.substr(0, first_end);
  head.remove_prefix(std::min(head.size(), first_end + kLineEnd.size()));
  const std::size_t first_space = line.find(' ');
  const std::size_t last_space = line.rfind(' ');
  if (first_space == std::string_view::npos || first_space == last_space) return kBadRequest;
  request_.method = line.substr(0, first_space);
  if (request_.method.empty()) return kBadRequest;
  const std::string_view version = line.substr(last_space + 1);
  if (version.size() != 8 || !version.starts_with("HTTP/")) return kBadRequest;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return kVersion;
  const HttpStatus target = read_target(line.substr(first_space + 1, last_space - first_space - 1));
  if (target != kOk) return target;
  while (!head.empty()) {
    const std::size_t end = std::min(head.find(kLineEnd), head.size());
    const HttpStatus field = read_field(head.substr(0, end));
    if (field != kOk) return field;
    head.remove_prefix(std::min(head.size(), end + kLineEnd.size()));
  }
  return has_host_ ? kOk : kBadRequest;
}

HttpStatus HttpReader::read_target(std::string_view target) {
  if (target.size() > kMostTarget) return kTargetTooLong;
  if (!target.starts_with('/') || !std::all_of(target.begin(), target.end(), is_visible)) {
    return kBadRequest;
  }
  const std::size_t question = target.find('?');
  request_.path = target.substr(0, question);
  std::string_view query = question == std::string_view::npos ? "" : target.substr(question + 1);
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    if (part.starts_with("token=")) request_.tokens.emplace_back(part.substr(6));
    if (!part.starts_with("after=")) continue;
    const auto after = parse_int(part.substr(6));
    if (!after.ok()) return kBadRequest;
    request_.after = *after;
  }
  return kOk;
}

// A line that continues the one before it begins with a space, which no name does.
HttpStatus HttpReader::read_field(std::string_view line) {
  if (++fields_ > kMostFields) return kHeadTooLarge;
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return kBadRequest;
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), is_field_character)) return kBadRequest;
  const std::string name = lower_case(line.substr(0, colon));
  if (name == "host") {
    if (std::exchange(has_host_, true)) return kBadRequest;
    request_.host = value;
  } else if (name == "authorization") {
    if (request_.authorization) return kBadRequest;
    request_.authorization = value;
  } else if (name == "content-length") {
    request_.has_body |= value != "0";
  } else if (name == "transfer-encoding") {
    request_.has_body = true;
  }
  return kOk;
}

}  // namespace regen::share
