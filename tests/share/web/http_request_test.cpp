// Heads of requests: what browsers, curl and Prometheus send, however it is cut, and what others send.
#include "regen/share/web/http_request.h"

#include <gtest/gtest.h>

#include "regen/base/random.h"
#include "regen/share/web/page_access.h"
#include "regen/share/web/page_address.h"

namespace regen::share {
namespace {

using enum HttpStatus;

const std::string kGood =
    "GET /history.json?after=17&token=abc HTTP/1.1\r\nHost: 127.0.0.1:80\r\n"
    "Accept: */*\r\nX-Empty:\r\nUser-Agent: a \x80\xff b\r\n\r\n";

HttpStatus status_of(const std::string& bytes) {
  HttpReader reader;
  EXPECT_TRUE(reader.append(bytes)) << bytes;
  return reader.status();
}

// A whole request with this first line and these fields.
HttpStatus head(const std::string& line, const std::string& fields = "Host: localhost\r\n") {
  return status_of(line + "\r\n" + fields + "\r\n");
}

TEST(HttpRequest, IsReadHoweverItIsCut) {
  for (std::size_t cut = 0; cut <= kGood.size(); ++cut) {
    HttpReader reader;
    const bool early = reader.append(kGood.substr(0, cut));
    EXPECT_EQ(early, cut == kGood.size());
    ASSERT_TRUE(early || reader.append(kGood.substr(cut))) << cut;
    ASSERT_EQ(reader.status(), kOk);
    const HttpRequest& request = reader.request();
    EXPECT_EQ(request.method, "GET");
    EXPECT_EQ(request.path, "/history.json");
    EXPECT_EQ(request.tokens, std::vector<std::string>{"abc"});
    EXPECT_EQ(request.after, 17);
    EXPECT_EQ(request.host, "127.0.0.1:80");
    EXPECT_FALSE(request.authorization);
    EXPECT_FALSE(request.has_body);
  }
  HttpReader bytewise;
  for (std::size_t i = 0; i < kGood.size(); ++i) {
    EXPECT_EQ(bytewise.append(kGood.substr(i, 1)), i + 1 == kGood.size());
  }
  EXPECT_EQ(bytewise.status(), kOk);
}

TEST(HttpRequest, WhatFollowsIsNotLookedAt) {
  EXPECT_EQ(status_of(kGood + "POST / HTTP/9.9\r\n\r\n" + std::string(100'000, 'x')), kOk);
}

TEST(HttpRequest, FirstLines) {
  EXPECT_EQ(head("GET / HTTP/1.1"), kOk);
  EXPECT_EQ(head("GET / HTTP/1.0"), kOk);
  EXPECT_EQ(head("POST / HTTP/1.1"), kOk) << "refused later, and only to those with the token";
  for (const char* bad : {"",
                          " ",
                          "GET",
                          "GET /",
                          "GET  / HTTP/1.1",
                          "GET / HTTP/1.1 ",
                          " GET / HTTP/1.1",
                          "GET /  HTTP/1.1",
                          "get / HTTP/1.1",
                          "G\x01T / HTTP/1.1",
                          "GET\t/ HTTP/1.1",
                          "GET * HTTP/1.1",
                          "GET http://evil/ HTTP/1.1",
                          "GET /a b HTTP/1.1",
                          "GET /\x7f HTTP/1.1",
                          "GET /\xc3\xa4 HTTP/1.1",
                          "GET / http/1.1",
                          "GET / HTTP/1.12",
                          "GET / HTTP/",
                          "GET /?after=x HTTP/1.1",
                          "GET /?after= HTTP/1.1",
                          "GET /?after=99999999999999999999 HTTP/1.1",
                          "GET / HTTP/1.1\nX: y",
                          "RGSH\x01 / HTTP/1.1",
                          "\x16\x03\x01 tls HTTP/1.1",
                          "/ HTTP/1.1"}) {
    EXPECT_EQ(head(bad), kBadRequest) << bad;
  }
  EXPECT_EQ(status_of(std::string("GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 36)), kBadRequest);
  EXPECT_EQ(head("GET / HTTP/2.0"), kVersion);
  EXPECT_EQ(head("GET / HTTP/0.9"), kVersion);
}

TEST(HttpRequest, Fields) {
  const std::string line = "GET / HTTP/1.1";
  EXPECT_EQ(head(line, "hOST:localhost\r\n"), kOk);
  for (const char* bad :
       {"", "X: y\r\n", "Host: a\r\nHost: a\r\n", "Host : localhost\r\n", " Host: localhost\r\n",
        "Host localhost\r\n", "Host: a\r\n folded\r\n", "Host: a\r\n\tfolded\r\n",
        ": a\r\nHost: a\r\n", "H\xc3\xb6st: a\r\nHost: a\r\n", "Host: a\x01\r\n", "Host: a\rb\r\n",
        "Host: a\nX: b\r\n", "Host: a\x7f\r\n",
        "Host: a\r\nAuthorization: x\r\nAuthorization: x\r\n"}) {
    EXPECT_EQ(head(line, bad), kBadRequest) << bad;
  }
  EXPECT_EQ(head(line, std::string("Host: a\0b\r\n", 11)), kBadRequest);
}

TEST(HttpRequest, Bodies) {
  const auto has_body = [](const std::string& field) {
    HttpReader reader;
    reader.append("GET / HTTP/1.1\r\nHost: a\r\n" + field + "\r\n\r\n");
    EXPECT_EQ(reader.status(), kOk);
    return reader.request().has_body;
  };
  EXPECT_FALSE(has_body("Content-Length: 0"));
  EXPECT_TRUE(has_body("Content-Length: 5"));
  EXPECT_TRUE(has_body("content-length: -0"));
  EXPECT_TRUE(has_body("Transfer-Encoding: identity"));
}

TEST(HttpRequest, HasLimits) {
  const std::string host = "\r\nHost: localhost\r\n";
  const auto target = [](std::size_t size) {
    return "GET /" + std::string(size - 1, 'a') + " HTTP/1.1";
  };
  EXPECT_EQ(head(target(HttpReader::kMostTarget)), kOk);
  EXPECT_EQ(head(target(HttpReader::kMostTarget + 1)), kTargetTooLong);
  std::string fields = "Host: localhost\r\n";
  for (std::size_t i = 1; i < HttpReader::kMostFields; ++i) fields += "X: y\r\n";
  EXPECT_EQ(head("GET / HTTP/1.1", fields), kOk);
  EXPECT_EQ(head("GET / HTTP/1.1", fields + "X: y\r\n"), kHeadTooLarge);
  const std::string start = "GET / HTTP/1.1" + host + "X: ";
  const std::size_t room = HttpReader::kMostHead - start.size() - 4;
  EXPECT_EQ(status_of(start + std::string(room, 'x') + "\r\n\r\n"), kOk);
  EXPECT_EQ(status_of(start + std::string(room + 1, 'x') + "\r\n\r\n"), kHeadTooLarge);
}

// Without an end, nothing is waited for longer than the limits say.
TEST(HttpRequest, EndsSoonWhateverComes) {
  for (const char c : {'A', 'x', '\0', '\r', '\n', ' ', '/'}) {
    HttpReader reader;
    std::size_t taken = 0;
    while (!reader.append(std::string(1, c))) ++taken;
    EXPECT_LE(taken, HttpReader::kMostHead);
    EXPECT_NE(reader.status(), kOk);
  }
  HttpReader endless;
  EXPECT_FALSE(endless.append("GET / HTTP/1.1\r\nHost: a\r\n"));
  std::size_t lines = 0;
  while (!endless.append("X: y\r\n")) ++lines;
  EXPECT_EQ(endless.status(), kHeadTooLarge);
  EXPECT_LE(lines, HttpReader::kMostHead / 6);
}

// Damaged requests end in some status, at any cut in the same one, and what is accepted has no more than its limits.
TEST(HttpRequest, DamagedOnes) {
  Random random(17);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = kGood;
    for (auto changes = random.between(1, 4); changes > 0; --changes) {
      const std::size_t at = random.next() % bytes.size();
      switch (random.between(0, 3)) {
        case 0:
          bytes[at] = static_cast<char>(random.next());
          break;
        case 1:
          bytes.erase(at, static_cast<std::size_t>(random.between(1, 5)));
          break;
        case 2:
          bytes.insert(at, bytes.substr(random.next() % bytes.size(), 7));
          break;
        default:
          bytes.insert(at, "\r\n");
          break;
      }
      if (bytes.empty()) bytes = "x";
    }
    bytes += "\r\n\r\n";
    HttpReader whole, parts;
    ASSERT_TRUE(whole.append(bytes));
    std::string_view rest = bytes;
    while (!rest.empty() && !parts.append(rest.substr(0, 3))) {
      rest.remove_prefix(std::min<std::size_t>(3, rest.size()));
    }
    ASSERT_EQ(whole.status(), parts.status()) << bytes;
    if (whole.status() != kOk) continue;
    ++accepted;
    ASSERT_EQ(whole.request().path[0], '/');
    ASSERT_EQ(whole.request().path.find_first_of(" \r\n"), std::string::npos);
    ASSERT_EQ(whole.request().host.find_first_of("\r\n"), std::string::npos);
  }
  EXPECT_GT(accepted, 500);
}

TEST(PageAccess, NamesOfThisMachine) {
  for (const char* good :
       {"127.0.0.1", "127.0.0.1:1", "localhost", "localhost:65535", "[::1]:80", "[::1]"}) {
    EXPECT_TRUE(names_this_machine(good)) << good;
  }
  for (const char* bad : {"", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example",
                          "localhost:", "localhost:80a", "localhost:123456", "127.0.0.2", "0.0.0.0",
                          "evil.example:127.0.0.1", "127.0.0.1@evil.example", "LOCALHOST.",
                          "localhost:80:80", "[::1", " localhost"}) {
    EXPECT_FALSE(names_this_machine(bad)) << bad;
  }
}

TEST(PageToken, IsRandomAndLong) {
  const PageToken one = PageToken::make().value();
  const PageToken other = PageToken::make().value();
  EXPECT_EQ(one.text().size(), 64u);
  EXPECT_EQ(one.text().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(one.text(), other.text());
  EXPECT_TRUE(one.matches(one.text()));
  EXPECT_FALSE(one.matches(other.text()));
  EXPECT_FALSE(one.matches(""));
  EXPECT_FALSE(one.matches(one.text() + "0"));
  EXPECT_FALSE(one.matches(one.text().substr(1)));
  for (std::size_t i = 0; i < 64; ++i) {
    std::string near = one.text();
    near[i] = near[i] == '0' ? '1' : '0';
    EXPECT_FALSE(one.matches(near)) << i;
  }
}

class Access : public ::testing::Test {
 protected:
  HttpStatus of(const HttpRequest& request) const { return access_of(request, token_); }
  HttpRequest good() const {
    return {.method = "GET", .path = "/", .tokens = {token_.text()}, .host = "localhost"};
  }

  PageToken token_ = PageToken::make().value();
};

TEST_F(Access, TakesTheTokenOnce) {
  EXPECT_EQ(of(good()), kOk);
  HttpRequest request = good();
  request.tokens.clear();
  EXPECT_EQ(of(request), kForbidden);
  for (const std::string scheme : {"Bearer ", "bearer ", "BEARER "}) {
    request.authorization = scheme + token_.text();
    EXPECT_EQ(of(request), kOk);
  }
  for (const std::string bad : {"Basic ", "Bearer", "Bearer  ", ""}) {
    request.authorization = bad + token_.text();
    EXPECT_EQ(of(request), kForbidden) << bad;
  }
  request.authorization = "Bearer " + token_.text();
  request.tokens = {token_.text()};
  EXPECT_EQ(of(request), kForbidden) << "twice";
  request = good();
  request.tokens.push_back(token_.text());
  EXPECT_EQ(of(request), kForbidden) << "twice";
}

TEST_F(Access, SaysNothingElseWithoutIt) {
  HttpRequest request = good();
  request.method = "POST";
  request.has_body = true;
  EXPECT_EQ(of(request), kNotAllowed);
  request.tokens = {"x"};
  EXPECT_EQ(of(request), kForbidden);
  request = good();
  request.has_body = true;
  EXPECT_EQ(of(request), kBadRequest);
  request = good();
  request.host = "evil.example";
  EXPECT_EQ(of(request), kForbidden);
}

TEST(PageAddress, OfThisMachineOnly) {
  EXPECT_EQ(*parse_page_address("127.0.0.1:0"), PageAddress{});
  EXPECT_EQ(parse_page_address("127.0.0.1:65535")->port, 65535);
  EXPECT_EQ(parse_page_address("unix:/a/b")->path, "/a/b");
  for (const std::string text : {"127.0.0.1:8080", "unix:/a/b"}) {
    EXPECT_EQ(to_string(*parse_page_address(text)), text);
  }
  for (const std::string bad : {"", "0.0.0.0:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                                "127.0.0.1:-1", "127.0.0.1:80 ", "localhost:80", "[::1]:80",
                                "127.0.0.2:80", ":80", "80", "http://127.0.0.1:80", "unix:"}) {
    ASSERT_FALSE(parse_page_address(bad).ok()) << bad;
    const std::string line = parse_page_address(bad).error().message;
    EXPECT_EQ(line.find('\n'), std::string::npos);
    if (bad == "unix:") continue;
    EXPECT_NE(line.find("expected 127.0.0.1:PORT"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace regen::share
