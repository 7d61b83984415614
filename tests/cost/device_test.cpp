#include "regen/cost/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "regen/base/file.h"

namespace regen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Everything is one: a byte takes a second, an operation takes a second.
Device unit_device() {
  return {.name = "unit",
          .matrix_fp32 = 1,
          .matrix_fp16 = 2,
          .vector_fp32 = 1,
          .memory_bandwidth = 1,
          .launch_seconds = 0,
          .memory_bytes = 100,
          .link = {.to_host = 1, .to_device = 2, .both = 2.5}};
}

std::string error_of(const std::string& text) {
  const auto device = parse_device(text, "d.json");
  return device.ok() ? "accepted" : device.error().message;
}

// The unit device's file with `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = write_device(unit_device());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  return text.replace(at, from.size(), to);
}

TEST(Device, EveryBuiltinIsSoundAndFoundByName) {
  std::set<std::string> names;
  for (const Device& device : builtin_devices()) {
    EXPECT_TRUE(check_device(device, device.name).ok()) << device.name;
    EXPECT_TRUE(names.insert(device.name).second) << device.name << " is listed twice";
    const auto found = find_device(device.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, device);
  }
  for (const char* name : {"v100-16", "v100-32", "p100", "k80", "a100-40", "a100-80", "h100",
                           "h200", "rtx3090", "rtx4090", "t4", "cpu"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

TEST(Device, LinksAreNotFullDuplexButNearlySo) {
  for (const Device& device : builtin_devices()) {
    if (!device.link.can_move()) continue;
    EXPECT_LT(device.link.both, device.link.to_host + device.link.to_device) << device.name;
    EXPECT_GT(device.link.both, device.link.to_host) << device.name;
  }
  EXPECT_FALSE(find_device("cpu")->link.can_move());
}

// 15.7e12 and 125e12 on the data sheet, where a multiply-accumulate counts twice.
TEST(Device, PeaksCountMultiplyAccumulatesOnce) {
  const auto device = find_device("V100-16");
  ASSERT_TRUE(device.ok()) << "letter case is ignored";
  EXPECT_DOUBLE_EQ(device->matrix_fp32, 7.85e12);
  EXPECT_DOUBLE_EQ(device->matrix_fp16, 62.5e12);
  EXPECT_DOUBLE_EQ(device->memory_bandwidth, 900e9);
  EXPECT_EQ(device->memory_bytes, 16'000'000'000);
}

TEST(Device, ReadsBackWhatItWrites) {
  const auto read = parse_device(write_device(unit_device()), "d.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, unit_device());
  for (const Device& device : builtin_devices()) {
    EXPECT_EQ(*parse_device(write_device(device), "d.json"), device);
  }
}

TEST(Device, LinkAndLaunchMayBeAbsentFromAFile) {
  const auto device = parse_device(R"({"format": "regen-device", "version": 1, "name": "x",
      "matrix_fp32": 1, "matrix_fp16": 1, "vector_fp32": 1, "memory_bandwidth": 1,
      "memory_bytes": 1})",
                                   "d.json");
  ASSERT_TRUE(device.ok()) << device.error().message;
  EXPECT_EQ(device->link, Link{});
  EXPECT_EQ(device->launch_seconds, 0);
}

TEST(Device, IsFoundByPath) {
  const std::string path = ::testing::TempDir() + "/unit_device.json";
  ASSERT_TRUE(write_file(path, write_device(unit_device())).ok());
  const auto device = find_device(path);
  ASSERT_TRUE(device.ok()) << device.error().message;
  EXPECT_EQ(*device, unit_device());
}

TEST(Device, UnknownNamesGetTheListAndPathsTheSystemsReason) {
  const std::string unknown = find_device("v1000").error().message;
  EXPECT_THAT(unknown, HasSubstr("unknown device 'v1000'"));
  EXPECT_THAT(unknown, HasSubstr("v100-16, v100-32, p100"));
  EXPECT_THAT(find_device("").error().message, HasSubstr("unknown device ''"));
  for (const char* path : {"no/such/file", "missing.json"}) {
    const std::string message = find_device(path).error().message;
    EXPECT_THAT(message, HasSubstr(path));
    EXPECT_THAT(message, Not(HasSubstr("v100-16")));
  }
}

TEST(Device, RefusesWhatIsNoDeviceFile) {
  EXPECT_THAT(error_of("{"), HasSubstr("d.json: not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("an array found, expected an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr("'format' is missing"));
  EXPECT_THAT(error_of(changed("regen-device", "regen-plan")),
              HasSubstr("d.json: format: 'regen-plan' found, expected 'regen-device'"));
  EXPECT_THAT(error_of(changed("\"version\": 1", "\"version\": 2")),
              HasSubstr("version: 2 found, expected a whole number from 1 to 1"));
  EXPECT_THAT(error_of(changed("\"vector_fp32\"", "\"vector_fp33\"")),
              HasSubstr("unknown field 'vector_fp33'"));
  EXPECT_THAT(error_of(changed("\"both\"", "\"bath\"")), HasSubstr("link: unknown field 'bath'"));
}

TEST(Device, RefusesMissingFieldsAndWrongTypes) {
  EXPECT_THAT(error_of(changed("\"name\": \"unit\",", "")), HasSubstr("'name' is missing"));
  EXPECT_THAT(error_of(changed("\"unit\"", "7")), HasSubstr("name: 7 found, expected a string"));
  EXPECT_THAT(error_of(changed("\"unit\"", "\"\"")), HasSubstr("expected a name"));
  EXPECT_THAT(error_of(changed("\"memory_bytes\": 100", "\"memory_bytes\": 1.5")),
              HasSubstr("memory_bytes: 1.5 found, expected a whole number"));
  EXPECT_THAT(error_of(changed("\"matrix_fp32\": 1.0", "\"matrix_fp32\": \"1\"")),
              HasSubstr("matrix_fp32: \"1\" found, expected a number"));
  EXPECT_THAT(error_of(changed("\"matrix_fp32\": 1.0", "\"matrix_fp32\": NaN")),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(changed("\"matrix_fp32\": 1.0", "\"matrix_fp32\": 1e999")),
              Not(HasSubstr("accepted")));
}

TEST(Device, RefusesPeaksAndBandwidthThatAreNotPositive) {
  for (const char* field : {"\"matrix_fp32\": 1.0", "\"matrix_fp16\": 2.0", "\"vector_fp32\": 1.0",
                            "\"memory_bandwidth\": 1.0"}) {
    const std::string text = field;
    const std::string name = text.substr(0, text.find(' ') + 1);
    for (const char* value : {"0", "-1"}) {
      EXPECT_THAT(error_of(changed(text, name + value)), HasSubstr("above 0")) << field;
    }
  }
  EXPECT_THAT(error_of(changed("\"launch_seconds\": 0.0", "\"launch_seconds\": -1e-6")),
              HasSubstr("launch_seconds: -1e-06 found, expected seconds, not below 0"));
  EXPECT_THAT(error_of(changed("\"memory_bytes\": 100", "\"memory_bytes\": 0")),
              HasSubstr("memory_bytes: 0 found"));
}

TEST(Device, RefusesLinksThatMakeNoSense) {
  EXPECT_THAT(error_of(changed("\"to_host\": 1.0", "\"to_host\": -1")),
              HasSubstr("d.json: link.to_host: -1 found"));
  EXPECT_THAT(error_of(changed("\"to_device\": 2.0", "\"to_device\": -2")),
              HasSubstr("link.to_device: -2 found"));
  EXPECT_THAT(error_of(changed("\"to_host\": 1.0", "\"to_host\": 0")),
              HasSubstr("link.to_host: 0 found, expected bytes per second, more than 0"));
  EXPECT_THAT(error_of(changed("\"both\": 2.5", "\"both\": 1.5")),
              HasSubstr("link.both: 1.5 found, expected at least link.to_host"));
  EXPECT_THAT(error_of(changed("\"both\": 2.5", "\"both\": null")), HasSubstr("link.both: null"));
}

TEST(Device, CheckRefusesNumbersThatNoFileCanHold) {
  Device device = unit_device();
  device.memory_bandwidth = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(check_device(device, "d").error().message, HasSubstr("memory_bandwidth: nan"));
  device = unit_device();
  device.link.both = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(check_device(device, "d").ok());
  device = unit_device();
  device.memory_bytes = kMaxBytes + 1;
  EXPECT_FALSE(check_device(device, "d").ok());
}

// At 4 operations per second a link of 8 bytes per second carries 2 bytes per operation.
TEST(Device, LinkInFlopUnitsIsBytesPerOperation) {
  Device device = unit_device();
  device.matrix_fp32 = 4;
  device.link = {.to_host = 8, .to_device = 12, .both = 16};
  EXPECT_EQ(link_in_unit(device, CostUnit::kSecond), device.link);
  const Link expected{.to_host = 2, .to_device = 3, .both = 4};
  EXPECT_EQ(link_in_unit(device, CostUnit::kFlop), expected);
}

}  // namespace
}  // namespace regen
