#include "regen/session/plan_cache.h"

#include <cstdio>

#include "regen/base/hash.h"
#include "regen/session/stored_plan.h"

namespace regen::session {
namespace {

// A plan has some bytes for each step: the largest in a test, of 100,000 ops, has 4 MB.
constexpr CacheKind kPlans{"plan", "plan-", std::size_t{256} << 20, 1024, std::size_t{512} << 20};

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

// A collision costs a search: the whole key is in the file and is compared.
std::string name_of(const PlanKey& key) {
  const std::string text = key.text();
  const std::uint64_t low = fnv1a(text);
  return "plan-" + hexadecimal(low) + hexadecimal(fnv1a(text, low)) + ".json";
}

// The simulator and the validator judge it, against the budget of now.
Result<PlannedStep> read(std::string_view text, const std::string& name, const PlanKey& key,
                         const RecordedStep& recorded) {
  REGEN_ASSIGN(StoredPlan stored, read_stored_plan(text, name));
  if (stored.key != key.text()) return bad_input(name + ": the plan has another key");
  if (stored.origin.improvement) stored.origin.improvement->before_step.reset();  // of a process
  auto accepted = recorded.accept(std::move(stored.plan), stored.origin);
  if (!accepted.ok()) return bad_input(name + ": " + accepted.error().message);
  PlannedStep planned = std::move(accepted).value();
  if (!fits(key, planned)) return bad_input(name + ": the plan does not fit the budget");
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
  return folder_->keeps() ? folder_->path() + "/" + name_of(key) : "";
}

std::optional<PlannedStep> PlanCache::load(const PlanKey& key, const RecordedStep& recorded) const {
  const std::string name = name_of(key);
  const auto text = folder_->read(kPlans, name);
  if (!text) return std::nullopt;
  auto planned = read(*text, name, key, recorded);
  if (planned.ok()) return std::move(planned).value();
  folder_->distrust(planned.error().message);
  return std::nullopt;
}

void PlanCache::save(const PlanKey& key, const PlannedStep& planned) const {
  if (!folder_->keeps()) return;
  folder_->update(kPlans, name_of(key), [&](const std::optional<std::string>&) {
    return std::optional(write_stored_plan(planned.report(), planned.plan(), key.text()));
  });
}

}  // namespace regen::session
