#include "regen/share/scheduler/job_table.h"

#include <cstdio>
#include <sstream>
#include <string_view>

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
  if (has_field(object, "changed")) {
    REGEN_ASSIGN(const JsonCursor changed, required_field(object, "changed"));
    REGEN_ASSIGN(entry.changed, change_from_json(changed));
  }
  return entry;
}

Json to_json(const JobTableEntry& entry) {
  Json json{
      {"name", entry.name},       {"identity", entry.identity},           {"device", entry.device},
      {"process", entry.process}, {"process_start", entry.process_start}, {"bytes", entry.bytes}};
  if (entry.changed != JobChange{}) json["changed"] = share::to_json(entry.changed);
  return json;
}

}  // namespace

std::uint64_t process_start(std::int64_t process) {
  // The process may end while its file is read, which streams would answer with an exception.
  FILE* file = std::fopen(("/proc/" + std::to_string(process) + "/stat").c_str(), "re");
  if (file == nullptr) return 0;
  char text[1024] = {};
  const std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  // The second field is the name in brackets, which may hold anything; the start is field 22.
  const std::size_t name_end = std::string_view(text, size).rfind(')');
  if (name_end == std::string_view::npos) return 0;
  std::istringstream fields(text + name_end + 1);
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  return fields >> start ? start : 0;
}

void write_job_table(const std::string& path, const std::vector<JobTableEntry>& entries) {
  Json jobs = Json::array();
  for (const JobTableEntry& entry : entries) jobs.push_back(to_json(entry));
  const std::string text = jobs.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  (void)write_file(path, text).ok();
}

std::vector<JobTableEntry> read_job_table(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return {};
  const auto document = parse_json(*text, path);
  if (!document.ok() || !document->is_array()) return {};
  const JsonCursor list(*document, path);
  std::vector<JobTableEntry> entries;
  for (std::size_t i = 0; i < document->size(); ++i) {
    const JsonCursor item = list.item(i);
    auto entry = entry_from_json(item);
    if (!entry.ok() || entry->process_start == 0) continue;
    if (process_start(entry->process) == entry->process_start) {
      entries.push_back(std::move(entry).value());
    }
  }
  return entries;
}

}  // namespace regen::share
