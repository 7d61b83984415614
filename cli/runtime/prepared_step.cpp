#include "cli/runtime/prepared_step.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include "cli/options.h"
#include "cli/output.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/record/link.h"

namespace regen::cli {
namespace {

// As in python/regen/runner.py, so that both make the same graph.
Bytes unforeseen_bytes(c10::Device device) {
  return device.is_cpu() ? Bytes{16} << 10 : Bytes{8} << 20;
}

// Inputs and constants may hold indices, on which a kernel's way depends; all else may be made up.
at::Tensor sample_of(const execute::ProgramData& data, const execute::Program& program,
                     execute::StorageId storage) {
  if (storage.index() >= data.size()) return {};
  const execute::Role role = program.storages[storage].role;
  const bool matters = role == execute::Role::kInput || role == execute::Role::kConstant;
  return matters ? data.tensor(storage) : at::Tensor();
}

Status record_program(const ProgramArgument& argument, PreparedStep& prepared) {
  execute::RecordOptions options;
  options.repeats = static_cast<int>(argument.repeats);
  options.algorithms = argument.algorithms;
  options.sample = [&](execute::StorageId storage) {
    return sample_of(*prepared.data, prepared.program, storage);
  };
  REGEN_ASSIGN(
      execute::Recording recording,
      execute::record_with_file(prepared.program, *prepared.device, options, argument.cache));
  prepared.recording = std::make_shared<const execute::Recording>(std::move(recording));
  return {};
}

Status make_graph(const ProgramArgument& argument, PreparedStep& prepared) {
  const c10::Device device = prepared.device->torch_device();
  execute::StepGraphOptions options;
  options.alignment = prepared.device->alignment();
  options.runtime_bytes = prepared.unforeseen_bytes + argument.reserve +
                          execute::generator_bytes(prepared.program, device);
  Json attributes{{"device", prepared.device->name()}};
  if (prepared.link) attributes["link"] = link_json(*prepared.link);
  options.attributes = attributes.dump(-1, ' ', false, Json::error_handler_t::replace);
  REGEN_ASSIGN(execute::StepGraph step, execute::make_step_graph(*prepared.recording, options));
  prepared.step = std::make_shared<const execute::StepGraph>(std::move(step));
  return {};
}

// What the driver counts for the context, libraries and other processes; recording has made torch
// keep memory that is in nobody's use.
Status note_driver_bytes(PreparedStep& prepared) {
  const c10::Device device = prepared.device->torch_device();
  if (device.is_cpu()) return {};
  c10::getDeviceAllocator(device.type())->emptyCache();
  REGEN_ASSIGN(const execute::MemoryUse use, execute::memory_use(device));
  prepared.driver_bytes_before = use.driver - use.reserved;
  return {};
}

Result<PreparedStep> prepare(const ProgramArgument& argument, const PrepareOptions& options) {
  PreparedStep prepared;
  REGEN_ASSIGN(prepared.program, execute::load_program(argument.folder));
  const std::string& name = argument.device.empty() ? prepared.program.device : argument.device;
  const auto device = execute::open_device(name);
  if (!device.ok()) return Error{device.error().code, "--device: " + device.error().message};
  prepared.device = *device;
  const c10::Device where = prepared.device->torch_device();
  REGEN_TRY(execute::install_memory_meter());
  prepared.unforeseen_bytes = unforeseen_bytes(where);
  REGEN_ASSIGN(prepared.data, execute::ProgramData::load(argument.folder, prepared.program, where,
                                                         options.needs_data));
  REGEN_TRY(record_program(argument, prepared));
  if (options.measures_link) REGEN_TRY(link_of(prepared));
  REGEN_TRY(make_graph(argument, prepared));
  REGEN_TRY(note_driver_bytes(prepared));
  return prepared;
}

}  // namespace

void add_program(CLI::App& verb, ProgramArgument& argument) {
  verb.add_option("PROGRAM", argument.folder,
                  "A folder with a captured step: program.json and data.bin")
      ->required()
      ->type_name("");
  verb.add_option("--device", argument.device,
                  "cpu, cuda or cuda:1 (default: the one that the step was captured on)")
      ->type_name("NAME");
  add_parsed(verb, "--repeats", argument.repeats, whole_number(1, 1'000'000), "N",
             "Timed runs of each op (default 5), fewer for slow ones");
  verb.add_option("--cache", argument.cache, "Keep measurements in this file and use them again")
      ->type_name("FILE");
  add_parsed(
      verb, "--algorithms", argument.algorithms, parse_algorithms, "default|any",
      "Which algorithms ops may take: those of plain PyTorch (default), or any that give the "
      "same results up to rounding");
  add_parsed(verb, "--reserve", argument.reserve, parse_bytes, "BYTES",
             "What a caller holds beside the step, as reserve= in Python (default 0)");
}

Result<PreparedStep> prepare_step(const ProgramArgument& argument, const PrepareOptions& options) {
  try {
    return prepare(argument, options);
  } catch (const c10::Error& error) {  // torch has no memory for the contents, say
    return missing(argument.folder + ": " + error.what_without_backtrace());
  }
}

Result<Link> link_of(PreparedStep& prepared) {
  if (!prepared.link) {
    REGEN_ASSIGN(prepared.link, execute::measure_link(*prepared.device));
  }
  return *prepared.link;
}

Json link_json(const Link& link) {
  return {{"to_host", json_number(link.to_host)},
          {"to_device", json_number(link.to_device)},
          {"both", json_number(link.both)}};
}

}  // namespace regen::cli
