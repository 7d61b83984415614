#include "regen/base/file.h"

#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

namespace regen {
namespace {

using FilePointer = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Error system_error(const std::string& what, const std::string& path, int code) {
  return bad_input("cannot " + what + " '" + path + "': " + std::strerror(code));
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return bad_input("cannot read '" + path + "': it is a directory, expected a file");
  }
  FilePointer file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return system_error("read", path, errno);
  std::string content;
  std::string buffer(1 << 16, '\0');
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    content.append(buffer, 0, n);
    if (content.size() > max_bytes) {
      return bad_input("cannot read '" + path + "': larger than " + std::to_string(max_bytes) +
                       " bytes, the largest file accepted");
    }
  }
  if (std::ferror(file.get())) return system_error("read", path, errno);
  return content;
}

Result<std::string> read_file_part(const std::string& path, std::int64_t offset,
                                   std::int64_t bytes) {
  FilePointer file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file || std::fseek(file.get(), static_cast<long>(offset), SEEK_SET) != 0) {
    return system_error("read", path, errno);
  }
  std::string content(static_cast<std::size_t>(bytes), '\0');
  if (std::fread(content.data(), 1, content.size(), file.get()) != content.size()) {
    return bad_input("cannot read '" + path + "': it ends before byte " +
                     std::to_string(offset + bytes) + ", expected at least that many");
  }
  return content;
}

Status write_file(const std::string& path, std::string_view content) {
  if (path == "-") {
    if (std::fwrite(content.data(), 1, content.size(), stdout) != content.size() ||
        std::fflush(stdout) != 0) {
      return system_error("write", "standard output", errno);
    }
    return {};
  }
  // A device or pipe is written directly: renaming over it would replace it.
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  const bool special =
      std::filesystem::exists(path, ignored) && kind != std::filesystem::file_type::regular;
  const std::string target = special ? path : temporary_beside(path);
  // "x": a file of that name is another writer's.
  FilePointer file(std::fopen(target.c_str(), special ? "wb" : "wbx"), &std::fclose);
  if (!file) return system_error("write", path, errno);
  const bool written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  const int write_code = errno;
  const bool closed = std::fclose(file.release()) == 0;
  if (!written || !closed) {
    const int code = written ? errno : write_code;
    if (!special) std::remove(target.c_str());
    return system_error("write", path, code);
  }
  return special ? Status() : rename_file(target, path);
}

// Processes of different containers may have the same number and the same folder, so that the name is random.
std::string temporary_beside(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    number = static_cast<std::uint64_t>(now) ^ static_cast<std::uint64_t>(::getpid()) << 40;
  }
  const std::filesystem::path target(path);
  const std::string name = "." + target.stem().string() + "." + std::to_string(number) + "." +
                           std::to_string(counter++) + target.extension().string();
  return (target.parent_path() / name).string();
}

Status rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    std::remove(from.c_str());
    return system_error("write", to, code);
  }
  return {};
}

}  // namespace regen
