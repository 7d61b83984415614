#include "regen/execute/record/record_cache.h"

#include <filesystem>

#include "regen/base/file.h"
#include "regen/base/folder_lock.h"
#include "regen/base/json_fields.h"
#include "regen/execute/program/dtype.h"

namespace regen::execute {
namespace {

constexpr int kVersion = 1;

Json to_json(const std::vector<CallAllocation>& allocations) {
  Json list = Json::array();
  for (const CallAllocation& a : allocations) {
    const bool freed = a.death != CallAllocation::kForever;
    list.push_back({a.bytes, a.birth, freed ? Json(a.death) : Json(nullptr)});
  }
  return list;
}

Json to_json(const std::vector<CallAlternative>& alternatives) {
  Json list = Json::array();
  for (const CallAlternative& a : alternatives) {
    list.push_back(
        {{"cap", a.cap}, {"seconds", a.seconds}, {"allocations", to_json(a.allocations)}});
  }
  return list;
}

Json to_json(const CallRecord& record) {
  Json results = Json::array();
  for (const ResultLayout& r : record.results) {
    results.push_back({{"source", static_cast<int>(r.source)},
                       {"index", r.index},
                       {"dtype", dtype_name(r.dtype)},
                       {"sizes", r.sizes},
                       {"strides", r.strides},
                       {"offset", r.offset}});
  }
  Json json = {{"seconds", record.seconds},
               {"allocations", to_json(record.allocations)},
               {"results", results}};
  if (record.overwritable) json["overwritable"] = *record.overwritable;
  if (record.shorter_seconds) json["shorter_seconds"] = *record.shorter_seconds;
  if (record.alternatives) json["alternatives"] = to_json(*record.alternatives);
  return json;
}

// The file is ours: what does not read as such is refused as a whole by load().
std::vector<CallAllocation> allocations_from(const Json& json) {
  std::vector<CallAllocation> allocations;
  for (const Json& a : json) {
    allocations.push_back(
        {a.at(0).get<Bytes>(), a.at(1).get<std::int64_t>(),
         a.at(2).is_null() ? CallAllocation::kForever : a.at(2).get<std::int64_t>()});
  }
  return allocations;
}

CallRecord from_json(const Json& json) {
  CallRecord record;
  record.seconds = json.at("seconds").get<double>();
  record.allocations = allocations_from(json.at("allocations"));
  if (json.contains("alternatives")) {
    record.alternatives.emplace();
    for (const Json& a : json.at("alternatives")) {
      record.alternatives->push_back({a.at("cap").get<Bytes>(), a.at("seconds").get<double>(),
                                      allocations_from(a.at("allocations"))});
    }
  }
  if (json.contains("overwritable")) {
    record.overwritable = json.at("overwritable").get<std::vector<std::size_t>>();
  }
  if (json.contains("shorter_seconds")) {
    record.shorter_seconds = json.at("shorter_seconds").get<double>();
  }
  for (const Json& r : json.at("results")) {
    ResultLayout layout;
    layout.source = static_cast<ResultSource>(r.at("source").get<int>());
    layout.index = r.at("index").get<std::size_t>();
    auto dtype = parse_dtype(r.at("dtype").get<std::string>());
    if (dtype.ok()) layout.dtype = *dtype;
    layout.sizes = r.at("sizes").get<std::vector<std::int64_t>>();
    layout.strides = r.at("strides").get<std::vector<std::int64_t>>();
    layout.offset = r.at("offset").get<std::int64_t>();
    record.results.push_back(std::move(layout));
  }
  return record;
}

bool says_more(const CallRecord& record, const CallRecord& other) {
  return (record.alternatives && !other.alternatives) ||
         (record.overwritable && !other.overwritable);
}

}  // namespace

const CallRecord* RecordCache::find(const std::string& key) const {
  const auto found = records_.find(key);
  return found == records_.end() ? nullptr : &found->second;
}

void RecordCache::insert(const std::string& key, CallRecord record) {
  records_.insert_or_assign(key, std::move(record));
  changed_ = true;
}

Result<RecordCache> RecordCache::load(const std::string& path, const std::string& device) {
  RecordCache cache;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return cache;
  REGEN_ASSIGN(const std::string text, read_file(path));
  REGEN_ASSIGN(const Json document, parse_json(text, path));
  const JsonCursor root(document, path);
  REGEN_TRY(check_format(root, "regen-profile", kVersion));
  try {
    if (document.at("device") != device) {
      return bad_input(path + ": device: " + excerpt(document.at("device")) +
                       " found, expected \"" + device + "\"");
    }
    const Json& calls = document.at("calls");
    for (auto it = calls.begin(); it != calls.end(); ++it) {
      cache.records_.emplace(it.key(), from_json(*it));
    }
  } catch (const nlohmann::json::exception& error) {
    return bad_input(path + ": " + error.what() + ", expected a profile written by regen");
  }
  return cache;
}

Result<bool> RecordCache::save(const std::string& path, const std::string& device) {
  // From here to the end of writing, or two would add to the same file and one of them in vain.
  const FolderLock lock(std::filesystem::path(path).parent_path().string());
  REGEN_ASSIGN(RecordCache file, load(path, device));
  bool others = false;
  for (const auto& [key, record] : records_) {
    const CallRecord* known = file.find(key);
    if (known == nullptr || says_more(record, *known)) {
      file.insert(key, record);
    } else {
      others |= *known != record;
    }
  }
  if (file.changed()) REGEN_TRY(file.write(path, device));
  records_ = std::move(file.records_);
  changed_ = false;
  return others;
}

Status RecordCache::write(const std::string& path, const std::string& device) const {
  Json calls = Json::object();
  for (const auto& [key, record] : records_) calls.push_back({key, to_json(record)});
  const Json document = {
      {"format", "regen-profile"}, {"version", kVersion}, {"device", device}, {"calls", calls}};
  return write_file(path, document.dump() + "\n");
}

}  // namespace regen::execute
