#include "regen/cost/device.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "regen/base/file.h"
#include "regen/base/json_fields.h"
#include "regen/base/text.h"

namespace regen {
namespace {

constexpr std::string_view kFormat = "regen-device";
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

// Vendors write GB for 2^30 bytes when they speak of device memory.
constexpr Bytes gib(Bytes n) {
  return n << 30;
}

// Bytes per second that pinned copies reach, not the raw rate of the lanes. Both directions
// together carry a little less than twice one of them.
constexpr Link kPcie3{.to_host = 12e9, .to_device = 12e9, .both = 22e9};
constexpr Link kPcie4{.to_host = 25e9, .to_device = 25e9, .both = 46e9};
constexpr Link kPcie5{.to_host = 55e9, .to_device = 55e9, .both = 100e9};

constexpr double kGpuLaunch = 5e-6;

// What a data sheet says, in its own units: 1e12 operations per second with a
// multiply-accumulate counted twice, and 1e9 bytes per second.
struct DataSheet {
  const char* name;
  double tflops_fp32;
  double tflops_fp16;
  double bandwidth_gbps;
  Bytes memory_bytes;
  Link link;
};

Device from_data_sheet(const DataSheet& sheet) {
  return {.name = sheet.name,
          .matrix_fp32 = sheet.tflops_fp32 * 0.5e12,
          .matrix_fp16 = sheet.tflops_fp16 * 0.5e12,
          .vector_fp32 = sheet.tflops_fp32 * 0.5e12,
          .memory_bandwidth = sheet.bandwidth_gbps * 1e9,
          .launch_seconds = kGpuLaunch,
          .memory_bytes = sheet.memory_bytes,
          .link = sheet.link};
}

std::vector<Device> make_builtin_devices() {
  // The sources and the choices behind each line are in docs/reference/costs.md.
  const DataSheet sheets[] = {
      {"v100-16", 15.7, 125, 900, 16'000'000'000, kPcie3},
      {"v100-32", 15.7, 125, 900, gib(32), kPcie3},
      {"p100", 9.3, 18.7, 732, gib(16), kPcie3},
      {"k80", 4.37, 4.37, 240, 12'000'000'000, kPcie3},
      {"a100-40", 19.5, 312, 1555, gib(40), kPcie4},
      {"a100-80", 19.5, 312, 2039, gib(80), kPcie4},
      {"h100", 67, 989, 3350, gib(80), kPcie5},
      {"h200", 67, 989, 4800, gib(141), kPcie5},
      {"rtx3090", 35.6, 71, 936, gib(24), kPcie4},
      {"rtx4090", 82.6, 165.2, 1008, gib(24), kPcie4},
      {"t4", 8.1, 65, 320, gib(16), kPcie3},
  };
  std::vector<Device> devices;
  for (const DataSheet& sheet : sheets) devices.push_back(from_data_sheet(sheet));
  // Sixteen cores at 3 GHz with two 8-wide multiply-accumulate units each. The host's memory is
  // the device's, so there is nowhere to move a tensor to.
  devices.push_back({.name = "cpu",
                     .matrix_fp32 = 768e9,
                     .matrix_fp16 = 768e9,
                     .vector_fp32 = 768e9,
                     .memory_bandwidth = 50e9,
                     .launch_seconds = 1e-6,
                     .memory_bytes = gib(64)});
  return devices;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// A misspelt name should get the list of names, a misspelt path the system's complaint.
bool looks_like_path(const std::string& text) {
  if (text.find('/') != std::string::npos || text.ends_with(".json")) return true;
  std::error_code ignored;
  return !text.empty() && std::filesystem::exists(text, ignored);
}

Error bad_field(const std::string& source, const char* field, double value, const char* expected) {
  return bad_input(source + ": " + field + ": " + format_exact(value) + " found, expected " +
                   expected);
}

// A link is there whole or not at all.
Status check_link(const Link& link, const std::string& source) {
  const auto bad = [](double rate) { return !std::isfinite(rate) || rate <= 0; };
  constexpr const char* kRate = "bytes per second, more than 0 (no link at all: nothing moves)";
  if (bad(link.to_host)) return bad_field(source, "link.to_host", link.to_host, kRate);
  if (bad(link.to_device)) return bad_field(source, "link.to_device", link.to_device, kRate);
  if (bad(link.both)) return bad_field(source, "link.both", link.both, kRate);
  if (link.both < std::max(link.to_host, link.to_device)) {
    return bad_field(source, "link.both", link.both,
                     "at least link.to_host and at least link.to_device");
  }
  return {};
}

Result<Link> parse_link(const JsonCursor& view) {
  REGEN_TRY(refuse_unknown_fields(view, {"to_host", "to_device", "both"}));
  Link link;
  REGEN_TRY(read_number(view, "to_host", link.to_host));
  REGEN_TRY(read_number(view, "to_device", link.to_device));
  REGEN_TRY(read_number(view, "both", link.both));
  return link;
}

}  // namespace

const std::vector<Device>& builtin_devices() {
  static const std::vector<Device> devices = make_builtin_devices();
  return devices;
}

std::string builtin_device_names() {
  std::string names;
  for (const Device& device : builtin_devices()) {
    names += (names.empty() ? "" : ", ") + device.name;
  }
  return names;
}

Result<Device> find_device(std::string_view name_or_path) {
  for (const Device& device : builtin_devices()) {
    if (equal_ignoring_case(device.name, name_or_path)) return device;
  }
  const std::string path(name_or_path);
  if (!looks_like_path(path)) {
    return bad_input("unknown device " + in_quotes(path) + ", expected " + builtin_device_names() +
                     " or the path of a device file");
  }
  REGEN_ASSIGN(const std::string text, read_file(path, kMaxFileBytes));
  return parse_device(text, path);
}

Status check_device(const Device& device, const std::string& source) {
  const auto positive = [](double rate) { return std::isfinite(rate) && rate > 0; };
  constexpr const char* kPeak = "a number of operations per second above 0";
  if (device.name.empty()) return bad_input(source + ": name: \"\" found, expected a name");
  if (!positive(device.matrix_fp32)) {
    return bad_field(source, "matrix_fp32", device.matrix_fp32, kPeak);
  }
  if (!positive(device.matrix_fp16)) {
    return bad_field(source, "matrix_fp16", device.matrix_fp16, kPeak);
  }
  if (!positive(device.vector_fp32)) {
    return bad_field(source, "vector_fp32", device.vector_fp32, kPeak);
  }
  if (!positive(device.memory_bandwidth)) {
    return bad_field(source, "memory_bandwidth", device.memory_bandwidth,
                     "a number of bytes per second above 0");
  }
  if (!std::isfinite(device.launch_seconds) || device.launch_seconds < 0) {
    return bad_field(source, "launch_seconds", device.launch_seconds, "seconds, not below 0");
  }
  if (device.memory_bytes <= 0 || device.memory_bytes > kMaxBytes) {
    return bad_input(source + ": memory_bytes: " + std::to_string(device.memory_bytes) +
                     " found, expected 1 to 8 PiB");
  }
  return device.link == Link{} ? Status() : check_link(device.link, source);
}

Result<Device> parse_device(std::string_view text, const std::string& source) {
  REGEN_ASSIGN(const Json document, parse_json(text, source));
  const JsonCursor root(document, source);
  REGEN_TRY(check_format(root, kFormat, 1));
  REGEN_TRY(refuse_unknown_fields(
      root, {"format", "version", "name", "matrix_fp32", "matrix_fp16", "vector_fp32",
             "memory_bandwidth", "launch_seconds", "memory_bytes", "link"}));
  Device device;
  REGEN_TRY(read_text(root, "name", device.name));
  REGEN_TRY(read_number(root, "matrix_fp32", device.matrix_fp32));
  REGEN_TRY(read_number(root, "matrix_fp16", device.matrix_fp16));
  REGEN_TRY(read_number(root, "vector_fp32", device.vector_fp32));
  REGEN_TRY(read_number(root, "memory_bandwidth", device.memory_bandwidth));
  if (has_field(root, "launch_seconds")) {
    REGEN_TRY(read_number(root, "launch_seconds", device.launch_seconds));
  }
  REGEN_ASSIGN(const JsonCursor memory, required_field(root, "memory_bytes"));
  REGEN_ASSIGN(device.memory_bytes, memory.whole(1, kMaxBytes));
  if (has_field(root, "link")) {
    REGEN_ASSIGN(const JsonCursor link, required_field(root, "link"));
    REGEN_ASSIGN(device.link, parse_link(link));
    REGEN_TRY(check_link(device.link, source));
  }
  REGEN_TRY(check_device(device, source));
  return device;
}

std::string write_device(const Device& device) {
  Json document;
  document["format"] = kFormat;
  document["version"] = 1;
  document["name"] = device.name;
  document["matrix_fp32"] = device.matrix_fp32;
  document["matrix_fp16"] = device.matrix_fp16;
  document["vector_fp32"] = device.vector_fp32;
  document["memory_bandwidth"] = device.memory_bandwidth;
  document["launch_seconds"] = device.launch_seconds;
  document["memory_bytes"] = device.memory_bytes;
  if (device.link != Link{}) {
    document["link"]["to_host"] = device.link.to_host;
    document["link"]["to_device"] = device.link.to_device;
    document["link"]["both"] = device.link.both;
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Link link_in_unit(const Device& device, CostUnit unit) {
  if (unit == CostUnit::kSecond) return device.link;
  const double flops_per_second = device.matrix_fp32;
  return {.to_host = device.link.to_host / flops_per_second,
          .to_device = device.link.to_device / flops_per_second,
          .both = device.link.both / flops_per_second};
}

}  // namespace regen
