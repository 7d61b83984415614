#include "regen/session/plan_cache.h"

#include <cstdio>

#include "regen/base/file.h"
#include "regen/session/stored_plan.h"

namespace regen::session {
namespace {

// A larger file is none of ours.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

// FNV-1a. A collision costs a search: the whole key is in the file and is compared.
std::uint64_t hash_of(std::string_view text, std::uint64_t hash) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return hash;
}

std::string hexadecimal(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string optional_bytes(const std::optional<Bytes>& bytes) {
  return bytes ? std::to_string(*bytes) : "none";
}

bool fits(const PlanKey& key, const PlannedStep& planned) {
  const Simulation& simulation = planned.simulation();
  return simulation.peak_bytes <= key.budget.value_or(kMaxBytes) &&
         simulation.host_peak_bytes <= key.host_budget.value_or(kMaxBytes);
}

Result<PlannedStep> read(const std::string& path, const PlanKey& key,
                         const RecordedStep& recorded) {
  REGEN_ASSIGN(const std::string text, read_file(path, kMostBytes));
  REGEN_ASSIGN(StoredPlan stored, read_stored_plan(text, path));
  if (stored.key != key.text()) return bad_input(path + ": the plan has another key");
  if (stored.origin.improvement) stored.origin.improvement->before_step.reset();  // of a process
  REGEN_ASSIGN(PlannedStep planned, recorded.accept(std::move(stored.plan), stored.origin));
  if (!fits(key, planned)) return bad_input(path + ": the plan does not fit the budget");
  return planned;
}

}  // namespace

std::string PlanKey::text() const {
  std::string text = "graph " + hexadecimal(fingerprint) + " base " + format_exact(base_seconds) +
                     " budget " + optional_bytes(budget) + " host " + optional_bytes(host_budget) +
                     " seconds " + format_exact(limits.seconds) + " work " +
                     std::to_string(limits.work) + " link " + format_exact(link.to_host) + " " +
                     format_exact(link.to_device) + " " + format_exact(link.both) + " planners";
  for (const std::string& planner : planners) text += " " + planner;
  return text;
}

std::string PlanCache::path(const PlanKey& key) const {
  if (folder_.empty()) return "";
  const std::string text = key.text();
  const std::uint64_t low = hash_of(text, 14695981039346656037ULL);
  return folder_ + "/plan-" + hexadecimal(low) + hexadecimal(hash_of(text, low)) + ".json";
}

std::optional<PlannedStep> PlanCache::load(const PlanKey& key, const RecordedStep& recorded) const {
  if (folder_.empty()) return std::nullopt;
  auto planned = read(path(key), key, recorded);
  if (!planned.ok()) return std::nullopt;
  return std::move(planned).value();
}

Status PlanCache::save(const PlanKey& key, const PlannedStep& planned) const {
  return folder_.empty() ? Status() : write_file(path(key), write_stored_plan(planned, key.text()));
}

}  // namespace regen::session
