#include "regen/share/protocol/environment.h"

#include <cstdlib>

namespace regen::share {
namespace {

constexpr const char* kSocket = "REGEN_SHARE_SOCKET";
constexpr const char* kName = "REGEN_SHARE_NAME";
constexpr const char* kDevice = "REGEN_SHARE_DEVICE";
constexpr const char* kPriority = "REGEN_SHARE_PRIORITY";
constexpr const char* kWeight = "REGEN_SHARE_WEIGHT";
constexpr const char* kMemory = "REGEN_SHARE_MEMORY";
constexpr const char* kDeadline = "REGEN_SHARE_DEADLINE";
constexpr const char* kDeepest = "REGEN_SHARE_DEEPEST";

// Reads the variable into `target` if it is set.
template <typename T, typename Parse>
Status read(const char* name, Parse parse, T& target) {
  const char* text = std::getenv(name);
  if (text == nullptr) return {};
  auto value = parse(std::string_view(text));
  if (!value.ok()) return bad_input(std::string(name) + ": " + value.error().message);
  target = std::move(value).value();
  return {};
}

}  // namespace

std::vector<std::pair<std::string, std::optional<std::string>>> to_environment(
    const Enrolment& enrolment) {
  const JobSpec& spec = enrolment.spec;
  std::optional<std::string> device;
  if (!spec.device.empty()) device = spec.device;
  std::optional<std::string> deadline;
  if (spec.deadline) deadline = format_exact(to_seconds(*spec.deadline));
  return {{kSocket, enrolment.socket},
          {kName, spec.name},
          {kDevice, device},
          {kPriority, std::to_string(spec.priority)},
          {kWeight, format_exact(spec.weight)},
          {kMemory, std::to_string(spec.memory)},
          {kDeadline, deadline},
          {kDeepest, to_string(enrolment.deepest)}};
}

Result<std::optional<Enrolment>> enrolment_from_environment() {
  const char* socket = std::getenv(kSocket);
  const char* name = std::getenv(kName);
  // The socket alone is how a user names a daemon; the name is what `run` adds.
  if (socket == nullptr || name == nullptr) return std::optional<Enrolment>();
  Enrolment enrolment{.socket = socket, .spec = {.name = name}};
  JobSpec& spec = enrolment.spec;
  if (const char* device = std::getenv(kDevice)) spec.device = device;
  REGEN_TRY(read(kPriority, parse_priority, spec.priority));
  REGEN_TRY(read(kWeight, parse_weight, spec.weight));
  REGEN_TRY(read(kMemory, parse_bytes, spec.memory));
  REGEN_TRY(read(kDeadline, parse_deadline, spec.deadline));
  REGEN_TRY(read(kDeepest, parse_depth, enrolment.deepest));
  return std::optional(std::move(enrolment));
}

Result<Enrolment> required_enrolment() {
  REGEN_ASSIGN(std::optional<Enrolment> enrolment, enrolment_from_environment());
  if (enrolment) return std::move(*enrolment);
  return missing(std::string(kSocket) + " and " + kName +
                 " are not set: this program was not started by regen, expected `regen share run "
                 "--memory BYTES -- COMMAND`");
}

}  // namespace regen::share
