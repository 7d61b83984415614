#include "cli/runtime/prepared_step.h"

#include <c10/util/Exception.h>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/program/permitted_operators.h"

namespace regen::cli {
namespace {

// Inputs and constants may hold indices, on which a kernel's way depends; all else may be made up.
at::Tensor sample_of(const execute::ProgramData& data, const execute::Program& program,
                     execute::StorageId storage) {
  if (storage.index() >= data.size()) return {};
  const execute::Role role = program.storages[storage].role;
  const bool matters = role == execute::Role::kInput || role == execute::Role::kConstant;
  return matters ? data.tensor(storage) : at::Tensor();
}

Result<session::CapturedStep> load_captured(const ProgramArgument& argument) {
  REGEN_ASSIGN(execute::Program program, execute::load_program(argument.folder));
  REGEN_TRY(execute::PermittedOperators(argument.allowed).check(program));
  auto device = execute::open_device(argument.device.empty() ? program.device : argument.device);
  if (!device.ok()) return Error{device.error().code, "--device: " + device.error().message};
  return session::CapturedStep(std::move(program), std::move(*device));
}

session::RecordingOptions recording_options(const ProgramArgument& argument,
                                            const PrepareOptions& options) {
  session::RecordingOptions made;
  made.repeats = static_cast<int>(argument.repeats);
  made.measurements = argument.cache;
  made.warn = [](const std::string& line) { warn(line); };
  made.algorithms = argument.algorithms;
  made.caller_bytes = argument.reserve;
  made.names_link = options.measures_link;
  return made;
}

// What the driver counts for the context, libraries and other processes; recording has made torch
// keep memory that nothing uses.
Status note_driver_bytes(PreparedStep& prepared) {
  const c10::Device device = prepared.device().torch_device();
  if (device.is_cpu()) return {};
  REGEN_TRY(execute::release_cached_memory(device));
  REGEN_ASSIGN(const execute::MemoryUse use, execute::memory_use(device));
  prepared.driver_bytes_before = use.driver - use.reserved;
  return {};
}

Result<PreparedStep> prepare(const ProgramArgument& argument, const PrepareOptions& options) {
  REGEN_ASSIGN(const session::CapturedStep captured, load_captured(argument));
  REGEN_TRY(execute::install_memory_meter());
  REGEN_ASSIGN(execute::ProgramData data,
               execute::ProgramData::load(argument.folder, captured.program(),
                                          captured.device()->torch_device(), options.needs_data));
  session::RecordingOptions recording = recording_options(argument, options);
  recording.sample = [&](execute::StorageId storage) {
    return sample_of(data, captured.program(), storage);
  };
  REGEN_ASSIGN(session::RecordedStep recorded, captured.record(recording));
  PreparedStep prepared{.recorded = std::move(recorded), .data = std::move(data)};
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
      verb, "--algorithms", argument.algorithms, execute::parse_algorithms, "default|any",
      "Which algorithms ops may take: those of plain PyTorch (default), or any that give the "
      "same results up to rounding");
  verb.add_option("--allow-op", argument.allowed,
                  "An operator that the step may call beside those that compute tensors and "
                  "optimizers' updates, as namespace::operator; for each one again")
      ->type_name("NAME")
      ->allow_extra_args(false);
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

}  // namespace regen::cli
