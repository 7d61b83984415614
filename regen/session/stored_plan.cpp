#include "regen/session/stored_plan.h"

#include <limits>

#include "regen/base/json_fields.h"
#include "regen/plan/plan_json.h"

namespace regen::session {
namespace {

constexpr std::string_view kFormat = "regen-stored-plan";
constexpr int kVersion = 1;

Json origin_json(const PlanOrigin& origin) {
  Json json{{"planner", origin.planner},
            {"status", std::string(to_string(origin.status))},
            {"lower_bound", origin.lower_bound},
            {"seconds", origin.seconds},
            {"work", origin.work},
            {"note", origin.note},
            {"searched", origin.searched}};
  if (origin.improvement) {
    Json& improvement = json["improvement"];
    improvement["search_seconds"] = origin.improvement->search_seconds;
    improvement["earlier_cost"] = origin.improvement->earlier_cost;
    if (origin.improvement->before_step) {
      improvement["before_step"] = *origin.improvement->before_step;
    }
  }
  return json;
}

Result<search::PlanStatus> read_status(const JsonCursor& object) {
  std::string text;
  REGEN_TRY(read_text(object, "status", text));
  for (const search::PlanStatus status :
       {search::PlanStatus::kOptimal, search::PlanStatus::kFeasible}) {
    if (text == to_string(status)) return status;
  }
  return object.error("status '" + text.substr(0, 40) + "' found, expected optimal or feasible");
}

Status read_amount(const JsonCursor& object, const char* key, double& value) {
  REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
  REGEN_ASSIGN(value, field.not_negative());
  return {};
}

Status read_improvement(const JsonCursor& object, PlanOrigin& origin) {
  if (!has_field(object, "improvement")) return {};
  REGEN_ASSIGN(const JsonCursor field, required_field(object, "improvement"));
  Improvement improvement;
  REGEN_TRY(read_amount(field, "search_seconds", improvement.search_seconds));
  REGEN_TRY(read_amount(field, "earlier_cost", improvement.earlier_cost));
  if (has_field(field, "before_step")) {
    REGEN_ASSIGN(const JsonCursor step, required_field(field, "before_step"));
    REGEN_ASSIGN(improvement.before_step, step.whole(0, std::numeric_limits<std::int64_t>::max()));
  }
  origin.improvement = improvement;
  return {};
}

Result<PlanOrigin> read_origin(const JsonCursor& object) {
  REGEN_TRY(object.expect_object());
  PlanOrigin origin;
  REGEN_TRY(read_text(object, "planner", origin.planner));
  REGEN_ASSIGN(origin.status, read_status(object));
  REGEN_TRY(read_amount(object, "lower_bound", origin.lower_bound));
  REGEN_TRY(read_amount(object, "seconds", origin.seconds));
  REGEN_ASSIGN(const JsonCursor work, required_field(object, "work"));
  REGEN_ASSIGN(origin.work, work.whole(0, std::numeric_limits<std::int64_t>::max()));
  REGEN_TRY(read_text(object, "note", origin.note));
  REGEN_TRY(read_amount(object, "searched", origin.searched));
  REGEN_TRY(read_improvement(object, origin));
  return origin;
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string write_stored_plan(const PlanReport& report, const Plan& plan, std::string_view key) {
  PlanOrigin origin = report.origin;
  origin.lower_bound = report.lower_bound;
  return "{\"format\": \"" + std::string(kFormat) + "\", \"version\": " + std::to_string(kVersion) +
         ", \"key\": " + dumped(Json(std::string(key))) +
         ",\n\"report\": " + dumped(origin_json(origin)) + ",\n\"plan\": " + write_plan(plan) +
         "}\n";
}

Result<StoredPlan> read_stored_plan(std::string_view text, std::string_view source) {
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  const JsonCursor root(document, source);
  REGEN_TRY(check_format(root, kFormat, kVersion));
  StoredPlan stored;
  REGEN_TRY(read_text(root, "key", stored.key));
  REGEN_ASSIGN(const JsonCursor report, required_field(root, "report"));
  REGEN_ASSIGN(stored.origin, read_origin(report));
  REGEN_ASSIGN(const JsonCursor plan, required_field(root, "plan"));
  REGEN_ASSIGN(stored.plan, parse_plan(dumped(plan.value()), source));
  return stored;
}

}  // namespace regen::session
