// Captured steps: no text crashes the reader, and a program that is read survives its own format.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/execute/program/program.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regen::execute;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto program = read_program(text, "fuzz");
  if (!program.ok()) return 0;
  const auto again = read_program(write_program(*program), "again");
  if (!again.ok() || !(*again == *program)) std::abort();
  for (const ValueSpec& value : program->values) {
    const StorageSpec& storage = program->storages[value.storage];
    if (storage.role != Role::kComputed && !fits_in(value, storage.bytes)) std::abort();
  }
  return 0;
}
