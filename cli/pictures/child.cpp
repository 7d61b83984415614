#include "cli/pictures/child.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX asks for it

namespace regen::cli {
namespace {

// Nameless files instead of pipes: no side can block the other, and nothing is left behind.
using TemporaryFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

TemporaryFile temporary_file() {
  return {std::tmpfile(), &std::fclose};
}

std::string content_of(std::FILE* file) {
  std::rewind(file);
  std::string content;
  std::string buffer(1 << 16, '\0');
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file)) {
    content.append(buffer, 0, n);
  }
  return content;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> result = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool changed = std::any_of(changes.begin(), changes.end(), [&](const std::string& c) {
      return std::string_view(c).starts_with(name);
    });
    if (!changed) result.emplace_back(text);
  }
  return result;
}

Result<int> spawn_and_wait(std::vector<std::string> command, std::vector<std::string> environment,
                           const int (&files)[3]) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int i = 0; i < 3; ++i) posix_spawn_file_actions_adddup2(&actions, files[i], i);
  pid_t child = 0;
  const int code = ::posix_spawnp(&child, command[0].c_str(), &actions, nullptr,
                                  pointers(command).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    return missing("cannot run '" + command[0] + "': " + std::strerror(code));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return missing("lost '" + command[0] + "': " + std::strerror(errno));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Result<ChildResult> run_child(const std::vector<std::string>& command, std::string_view input,
                              const std::vector<std::string>& environment) {
  const TemporaryFile in = temporary_file();
  const TemporaryFile out = temporary_file();
  const TemporaryFile err = temporary_file();
  if (!in || !out || !err || std::fwrite(input.data(), 1, input.size(), in.get()) != input.size() ||
      std::fflush(in.get()) != 0) {
    return missing("cannot make a temporary file for '" + command[0] +
                   "': " + std::strerror(errno));
  }
  std::rewind(in.get());
  const int files[3] = {::fileno(in.get()), ::fileno(out.get()), ::fileno(err.get())};
  REGEN_ASSIGN(const int status, spawn_and_wait(command, merged_environment(environment), files));
  return ChildResult{status, content_of(out.get()), content_of(err.get())};
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1) + 1);
}

}  // namespace regen::cli
