#include "regen/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "regen/base/open_file.h"

namespace regen {
namespace {

constexpr mode_t kFileMode = 0666;  // less what the user's mask takes away

Error system_error(const std::string& what, const std::string& path, int code) {
  return bad_input("cannot " + what + " '" + path + "': " + std::strerror(code));
}

int write_through(const std::string& path, std::string_view content) {
  OpenFile file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file) return errno;
  const int error = write_all(file, content);
  const int closed = file.close();
  return error != 0 ? error : closed;
}

int write_beside(const std::string& path, std::string_view content) {
  return replace_file(AT_FDCWD, temporary_beside(path), path, content, kFileMode);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return bad_input("cannot read '" + path + "': it is a directory, expected a file");
  }
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("read", path, errno);
  std::string content;
  const int error = read_all(file, max_bytes, content);
  if (error == EFBIG) {
    return bad_input("cannot read '" + path + "': larger than " + std::to_string(max_bytes) +
                     " bytes, the largest file accepted");
  }
  if (error != 0) return system_error("read", path, error);
  return content;
}

Result<std::string> read_file_part(const std::string& path, std::int64_t offset,
                                   std::int64_t bytes) {
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("read", path, errno);
  // Before memory is taken for it: the numbers may come from a stranger.
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return system_error("read", path, errno);
  if (offset < 0 || bytes < 0 || offset > facts.st_size || bytes > facts.st_size - offset) {
    return bad_input("cannot read '" + path + "': it ends before byte " +
                     std::to_string(offset + bytes) + ", expected at least that many");
  }
  std::string content(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t have = 0; have < content.size();) {
    const ssize_t got = ::pread(file.get(), content.data() + have, content.size() - have,
                                offset + static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return system_error("read", path, got < 0 ? errno : EIO);
    have += static_cast<std::size_t>(got);
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
  const int error = special ? write_through(path, content) : write_beside(path, content);
  return error == 0 ? Status() : system_error("write", path, error);
}

std::string temporary_beside(const std::string& path) {
  const std::filesystem::path target(path);
  const std::string name =
      "." + target.stem().string() + "." + unique_digits() + target.extension().string();
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
