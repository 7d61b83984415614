// What the planner knows of a machine: how fast it computes, how much it holds, how fast
// tensors travel to the host and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen {

// Bandwidths in bytes per unit of the graph's cost (bytes per second for measured graphs).
// Zero in a direction means that nothing can be moved that way.
struct Link {
  double to_host = 0;
  double to_device = 0;
  double both = 0;  // joint limit while both directions move; at least each of them

  bool can_move() const { return to_host > 0 && to_device > 0; }
  bool operator==(const Link&) const = default;
};

struct Device {
  std::string name;
  // Operations per second, a multiply-accumulate counted once as everywhere in regen (so half
  // of what data sheets print), for matrix work in each type and for everything else.
  double matrix_fp32 = 0;
  double matrix_fp16 = 0;
  double vector_fp32 = 0;
  double memory_bandwidth = 0;  // bytes per second
  double launch_seconds = 0;    // added to every op
  Bytes memory_bytes = 0;
  Link link;  // bytes per second

  bool operator==(const Device&) const = default;
};

// The built-in devices, in the order in which they are listed for people.
const std::vector<Device>& builtin_devices();

// Their names as "v100-16, v100-32, ...", for messages.
std::string builtin_device_names();

// A built-in name (letter case ignored), or the path of a device file (docs/reference/costs.md).
Result<Device> find_device(std::string_view name_or_path);

// Positive peaks and bandwidth, a link that is absent or consistent. Every Device that
// find_device or parse_device returns passes. `source` begins the message.
Status check_device(const Device& device, const std::string& source);

// The JSON form of a device and back.
Result<Device> parse_device(std::string_view text, const std::string& source);
std::string write_device(const Device& device);

// The device's link in the unit of a graph's cost. A flop takes 1 / matrix_fp32 seconds, so that
// plans over flop graphs can weigh copies too.
Link link_in_unit(const Device& device, CostUnit unit);

}  // namespace regen
