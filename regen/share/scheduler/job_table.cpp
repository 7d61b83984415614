#include "regen/share/scheduler/job_table.h"

#include <filesystem>

#include "regen/base/file.h"
#include "regen/base/json.h"
#include "regen/base/json_fields.h"

namespace regen::share {
namespace {

Result<JobTableEntry> entry_from_json(const JsonCursor& object) {
  JobTableEntry entry;
  REGEN_TRY(read_text(object, "name", entry.name));
  REGEN_TRY(read_text(object, "identity", entry.identity));
  REGEN_TRY(read_text(object, "device", entry.device));
  const auto whole = [&](const char* key, std::int64_t high) -> Result<std::int64_t> {
    REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
    return field.whole(0, high);
  };
  REGEN_ASSIGN(entry.process, whole("process", INT32_MAX));
  REGEN_ASSIGN(const std::int64_t start, whole("process_start", INT64_MAX));
  entry.process_start = static_cast<std::uint64_t>(start);
  REGEN_ASSIGN(entry.bytes, whole("bytes", kMaxBytes));
  const auto optional_whole = [&](const char* key, std::int64_t low,
                                  std::int64_t& value) -> Status {
    if (!has_field(object, key)) return {};  // of an earlier version
    REGEN_ASSIGN(const JsonCursor field, required_field(object, key));
    REGEN_ASSIGN(value, field.whole(low, INT64_MAX));
    return {};
  };
  std::int64_t numbered = static_cast<std::int64_t>(process_namespace());
  REGEN_TRY(optional_whole("namespace", 0, numbered));
  entry.process_namespace = static_cast<std::uint64_t>(numbered);
  REGEN_TRY(optional_whole("user", kUnknownUser, entry.user));
  REGEN_TRY(optional_whole("use_file", 0, entry.use_file));
  if (has_field(object, "changed")) {
    REGEN_ASSIGN(const JsonCursor changed, required_field(object, "changed"));
    REGEN_ASSIGN(entry.changed, change_from_json(changed));
  }
  return entry;
}

Json to_json(const JobTableEntry& entry) {
  Json json{{"name", entry.name},
            {"identity", entry.identity},
            {"device", entry.device},
            {"process", entry.process},
            {"process_start", entry.process_start},
            {"namespace", entry.process_namespace},
            {"user", entry.user},
            {"use_file", entry.use_file},
            {"bytes", entry.bytes}};
  if (entry.changed != JobChange{}) json["changed"] = share::to_json(entry.changed);
  return json;
}

}  // namespace

std::optional<bool> process_lives(const JobTableEntry& entry) {
  if (entry.process <= 0 || entry.process_namespace != process_namespace()) return std::nullopt;
  if (entry.process_start == 0) return std::nullopt;  // it could not be read when the job came
  const auto start = process_start(entry.process);
  if (!start) return std::nullopt;
  return *start == entry.process_start;
}

Status write_job_table(const std::string& path, const std::vector<JobTableEntry>& entries) {
  Json jobs = Json::array();
  for (const JobTableEntry& entry : entries) jobs.push_back(to_json(entry));
  const std::string text = jobs.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return write_file(path, text);
}

Result<std::vector<JobTableEntry>> read_job_table(const std::string& path) {
  std::vector<JobTableEntry> entries;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return entries;
  REGEN_ASSIGN(const std::string text, read_file(path));
  const auto document = parse_json(text, path);
  if (!document.ok() || !document->is_array()) return entries;
  const JsonCursor list(*document, path);
  for (std::size_t i = 0; i < document->size(); ++i) {
    const JsonCursor item = list.item(i);
    auto entry = entry_from_json(item);
    if (entry.ok() && process_lives(*entry).value_or(true)) {
      entries.push_back(std::move(entry).value());
    }
  }
  return entries;
}

}  // namespace regen::share
