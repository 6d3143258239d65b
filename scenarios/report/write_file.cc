// SPDX-License-Identifier: Apache-2.0
#include "scenarios/report/write_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "arch_profiles/input_error.h"

namespace faultline::report {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void complain(const std::string& path, const std::string& option,
                           const std::string& why) {
  throw InputError({{option, 0, 0}, "", "can't write \"" + path + "\": " + why, "", {}});
}

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};

bool write_all(std::FILE* f, std::string_view content) {
  return std::fwrite(content.data(), 1, content.size(), f) == content.size() &&
         std::fflush(f) == 0;
}

}  // namespace

void write_file(const std::string& path, std::string_view content,
                const std::string& option) {
  if (path == "-") {
    if (!write_all(stdout, content))
      complain("standard output", option, std::strerror(errno));
    return;
  }
  const std::string temporary = path + ".part" + std::to_string(::getpid());
  {
    const std::unique_ptr<std::FILE, Close> f(std::fopen(temporary.c_str(), "wb"));
    if (f == nullptr) complain(path, option, std::strerror(errno));
    if (!write_all(f.get(), content)) {
      const int error = errno;
      std::remove(temporary.c_str());
      complain(path, option, std::strerror(error));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    complain(path, option, std::strerror(error));
  }
}

void make_folder(const std::string& path, const std::string& option) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    complain(path, option, error ? error.message() : "not a folder");
}

void check_writable(const std::string& path, const std::string& option) {
  if (path == "-") return;
  std::error_code error;
  if (fs::is_directory(path, error)) complain(path, option, "it is a folder");
  const fs::path folder = folder_of(path);
  if (!fs::is_directory(folder, error))
    complain(path, option, "no folder \"" + folder.string() + "\"");
  if (::access(folder.c_str(), W_OK) != 0) complain(path, option, std::strerror(errno));
}

}  // namespace faultline::report
