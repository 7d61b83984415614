#include "regen/share/daemon/rights.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "regen/base/file.h"
#include "regen/base/json.h"
#include "regen/base/json_fields.h"
#include "regen/base/text.h"

namespace regen::share {
namespace {

constexpr std::size_t kMostPolicyBytes = 1 << 20;
constexpr std::int64_t kMostJobs = 1'000'000;

using Lookup = std::function<std::optional<std::int64_t>(const std::string&)>;

std::optional<std::int64_t> user_named(const std::string& name) {
  const passwd* found = ::getpwnam(name.c_str());
  return found == nullptr ? std::nullopt : std::optional<std::int64_t>(found->pw_uid);
}

std::optional<std::int64_t> group_named(const std::string& name) {
  const group* found = ::getgrnam(name.c_str());
  return found == nullptr ? std::nullopt : std::optional<std::int64_t>(found->gr_gid);
}

// A name, or its number for those of containers, which have no name here.
Result<std::int64_t> id_of(const std::string& text, const Lookup& lookup, const char* what,
                           const JsonCursor& where) {
  const auto number = parse_int(text);
  if (number.ok() && *number >= 0 && *number <= UINT32_MAX) return *number;
  if (const auto found = lookup(text)) return *found;
  return where.error("unknown " + std::string(what) + " " + in_quotes(text) +
                     ", expected a name of this machine or a number");
}

Result<Bytes> read_limit_bytes(const JsonCursor& field) {
  if (!field.value().is_string()) return field.whole(0, kMaxBytes);
  const auto bytes = parse_bytes(field.value().get<std::string>());
  if (bytes.ok()) return *bytes;
  return field.error(bytes.error().message);
}

Status read_whole_limit(const JsonCursor& object, const char* key, std::int64_t high,
                        std::int64_t& value) {
  if (!has_field(object, key)) return {};
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(value, field.whole(0, high));
  return {};
}

// What is not said stays as in `limits`.
Result<UserLimits> read_limits(const JsonCursor& object, UserLimits limits) {
  REGEN_TRY(object.expect_object());
  REGEN_TRY(refuse_unknown_fields(object, {"priority", "weight", "memory", "jobs", "deadlines"}));
  REGEN_TRY(read_whole_limit(object, "priority", kMaxPriority, limits.priority));
  REGEN_TRY(read_whole_limit(object, "jobs", kMostJobs, limits.jobs));
  if (has_field(object, "weight")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, "weight"));
    REGEN_ASSIGN(limits.weight, field.not_negative());
  }
  if (has_field(object, "memory")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, "memory"));
    REGEN_ASSIGN(limits.memory, read_limit_bytes(field));
  }
  if (has_field(object, "deadlines")) {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, "deadlines"));
    REGEN_ASSIGN(limits.deadlines, field.boolean());
  }
  return limits;
}

Status read_table(const JsonCursor& root, const char* key, const Lookup& lookup, const char* what,
                  const UserLimits& base, std::map<std::int64_t, UserLimits>& table) {
  if (!has_field(root, key)) return {};
  REGEN_ASSIGN(const JsonCursor list, required_field(root, key));
  REGEN_TRY(list.expect_object());
  for (const auto& [name, value] : list.value().items()) {
    REGEN_ASSIGN(const JsonCursor entry, required_field(list, name.c_str()));
    REGEN_ASSIGN(const std::int64_t id, id_of(name, lookup, what, list));
    REGEN_ASSIGN(table[id], read_limits(entry, base));
  }
  return {};
}

UserLimits most_generous(const UserLimits& a, const UserLimits& b) {
  return {.priority = std::max(a.priority, b.priority),
          .weight = std::max(a.weight, b.weight),
          .memory = std::max(a.memory, b.memory),
          .jobs = std::max(a.jobs, b.jobs),
          .deadlines = a.deadlines || b.deadlines};
}

std::string user_text(const Peer& peer) {
  return peer.user == kUnknownUser ? "an unknown user" : "user " + std::to_string(peer.user);
}

Error above(const Peer& peer, const JobSpec& spec, const std::string& what,
            const std::string& limit) {
  return limit_reached("job " + in_quotes(spec.name) + " of " + user_text(peer) + " has " + what +
                       ", expected at most " + limit +
                       " (an administrator of the daemon can allow more: --policy)");
}

}  // namespace

Rights::Rights() : administrators_{0, static_cast<std::int64_t>(::geteuid())} {}

Result<Rights> Rights::read(const std::string& path) {
  REGEN_ASSIGN(const std::string text, read_file(path, kMostPolicyBytes));
  return parse(text, path);
}

Result<Rights> Rights::parse(std::string_view text, const std::string& name) {
  REGEN_ASSIGN(const Json document, parse_json(text, name));
  const JsonCursor root(document, name);
  REGEN_TRY(root.expect_object());
  REGEN_TRY(refuse_unknown_fields(root, {"administrators", "default", "users", "groups"}));
  Rights rights;
  if (has_field(root, "administrators")) {
    REGEN_ASSIGN(const JsonCursor list, required_field(root, "administrators"));
    REGEN_ASSIGN(const std::size_t size, list.array_size());
    rights.administrators_.clear();  // containers often run as root
    for (std::size_t i = 0; i < size; ++i) {
      REGEN_ASSIGN(const std::string user, list.item(i).string());
      REGEN_ASSIGN(const std::int64_t id, id_of(user, user_named, "user", list.item(i)));
      rights.administrators_.insert(id);
    }
  }
  if (has_field(root, "default")) {
    REGEN_ASSIGN(const JsonCursor entry, required_field(root, "default"));
    REGEN_ASSIGN(rights.default_, read_limits(entry, rights.default_));
  }
  REGEN_TRY(read_table(root, "users", user_named, "user", rights.default_, rights.users_));
  REGEN_TRY(read_table(root, "groups", group_named, "group", rights.default_, rights.groups_));
  return rights;
}

bool Rights::is_administrator(const Peer& peer) const {
  return administrators_.contains(peer.user);
}

UserLimits Rights::limits_of(const Peer& peer) const {
  if (const auto own = users_.find(peer.user); own != users_.end()) return own->second;
  std::optional<UserLimits> limits;
  for (const std::int64_t group : peer.groups) {
    const auto found = groups_.find(group);
    if (found == groups_.end()) continue;
    limits = limits ? most_generous(*limits, found->second) : found->second;
  }
  return limits.value_or(default_);
}

Status Rights::allows(const Peer& peer, const JobSpec& spec, const UserHolds& others) const {
  if (is_administrator(peer)) return {};
  const UserLimits limits = limits_of(peer);
  if (spec.priority > limits.priority) {
    return above(peer, spec, "priority " + std::to_string(spec.priority),
                 std::to_string(limits.priority));
  }
  if (spec.weight > limits.weight) {
    return above(peer, spec, "weight " + format_exact(spec.weight), format_exact(limits.weight));
  }
  if (spec.deadline && !limits.deadlines) return above(peer, spec, "a deadline", "none");
  if (spec.memory > limits.memory - std::min(limits.memory, others.memory)) {
    return above(peer, spec,
                 format_grouped(spec.memory) + " bytes beside " + format_grouped(others.memory) +
                     " of its user's other jobs",
                 format_grouped(limits.memory) + " together");
  }
  if (others.jobs >= limits.jobs) {
    return above(peer, spec, format_grouped(others.jobs) + " jobs of its user beside it",
                 format_grouped(limits.jobs) + " in all");
  }
  return {};
}

Status Rights::may_change(const Peer& peer, const std::string& job, std::int64_t owner) const {
  if (is_administrator(peer) || (owner != kUnknownUser && owner == peer.user)) return {};
  return bad_input("job " + in_quotes(job) + " belongs to user " + std::to_string(owner) +
                   ", found " + user_text(peer) + ", expected its owner or an administrator");
}

}  // namespace regen::share
