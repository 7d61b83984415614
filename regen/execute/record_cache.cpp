#include "regen/execute/record_cache.h"

#include <filesystem>

#include "regen/base/file.h"
#include "regen/base/json_fields.h"
#include "regen/execute/dtype.h"

namespace regen {
namespace {

constexpr int kVersion = 1;

Json to_json(const CallRecord& record) {
  Json allocations = Json::array();
  for (const CallAllocation& a : record.allocations) {
    const bool freed = a.death != CallAllocation::kForever;
    allocations.push_back({a.bytes, a.birth, freed ? Json(a.death) : Json(nullptr)});
  }
  Json results = Json::array();
  for (const ResultLayout& r : record.results) {
    results.push_back({{"source", static_cast<int>(r.source)},
                       {"index", r.index},
                       {"dtype", dtype_name(r.dtype)},
                       {"sizes", r.sizes},
                       {"strides", r.strides},
                       {"offset", r.offset}});
  }
  return {{"seconds", record.seconds}, {"allocations", allocations}, {"results", results}};
}

// The file is ours: what does not read as such is refused as a whole by load().
CallRecord from_json(const Json& json) {
  CallRecord record;
  record.seconds = json.at("seconds").get<double>();
  for (const Json& a : json.at("allocations")) {
    record.allocations.push_back({a.at(0).get<Bytes>(), a.at(1).get<std::int64_t>(),
                                  a.at(2).is_null() ? CallAllocation::kForever
                                                    : a.at(2).get<std::int64_t>()});
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
      return bad_input(path + ": device: " + excerpt(document.at("device")) + " found, expected \"" +
                       device + "\"");
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

Status RecordCache::save(const std::string& path, const std::string& device) const {
  Json calls = Json::object();
  for (const auto& [key, record] : records_) calls.push_back({key, to_json(record)});
  const Json document = {
      {"format", "regen-profile"}, {"version", kVersion}, {"device", device}, {"calls", calls}};
  return write_file(path, document.dump() + "\n");
}

}  // namespace regen
