// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace faultline::oracle {
namespace {

constexpr const char* kEnabled = "/sys/kernel/mm/transparent_hugepage/enabled";
constexpr const char* kZeroPage = "/sys/kernel/mm/transparent_hugepage/use_zero_page";
constexpr const char* kHugepages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

std::string read_line(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// "always [madvise] never": the word in brackets.
std::string chosen(const std::string& line) {
  const std::size_t open = line.find('['), close = line.find(']');
  return close == std::string::npos ? line : line.substr(open + 1, close - open - 1);
}

bool write_line(const char* file, const std::string& value) {
  const int fd = ::open(file, O_WRONLY);
  if (fd < 0) return false;
  const bool done =
      ::write(fd, value.data(), value.size()) == static_cast<ssize_t>(value.size());
  ::close(fd);
  return done;
}

// What a signal handler can put back without anything but open and write.
struct Original {
  char enabled[32], hugepages[32];
  bool held;
};
Original g_original;

void put_back() {
  if (!g_original.held) return;
  for (const auto& [file, value] : {std::pair{kEnabled, g_original.enabled},
                                    std::pair{kHugepages, g_original.hugepages}}) {
    const int fd = ::open(file, O_WRONLY);
    if (fd < 0) continue;
    if (::write(fd, value, std::strlen(value)) < 0) static_cast<void>(0);
    ::close(fd);
  }
}

void on_end(int number) {
  put_back();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

std::string preset_of_host() {
  struct utsname name;
  if (::uname(&name) != 0 || std::strcmp(name.machine, "x86_64") != 0) return "";
  int major = 0, minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  return major == 6 && (minor == 1 || minor == 18) ? fmt::format("{}.{}", major, minor)
                                                   : "";
}

bool has_anon_names() {
  void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int r = ::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, page, 4096UL, "probe");
  ::munmap(page, 4096);
  return r == 0;
}

}  // namespace

HostSettings read_host() {
  HostSettings host;
  host.preset = preset_of_host();
  host.thp_enabled = chosen(read_line(kEnabled));
  host.use_zero_page = read_line(kZeroPage) != "0";
  host.anon_names = has_anon_names();
  host.nr_hugepages = std::strtoull(read_line(kHugepages).c_str(), nullptr, 10);
  return host;
}

Counters parse_vmstat(const std::string& text) {
  Counters counters{};
  std::istringstream in(text);
  std::string name;
  for (std::uint64_t value = 0; in >> name >> value;)
    for (std::size_t i = 0; i < counters.size(); ++i)
      if (name == kVmstatCounters[i]) counters[i] = value;
  return counters;
}

SystemSettings::SystemSettings() {
  const HostSettings host = read_host();
  std::snprintf(g_original.enabled, sizeof g_original.enabled, "%s",
                host.thp_enabled.c_str());
  std::snprintf(g_original.hugepages, sizeof g_original.hugepages, "%llu",
                static_cast<unsigned long long>(host.nr_hugepages));
  g_original.held = true;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGABRT}) ::signal(number, on_end);
}

SystemSettings::~SystemSettings() {
  put_back();
  g_original.held = false;
}

bool SystemSettings::change(const std::string& thp_enabled, std::uint64_t nr_hugepages) {
  return write_line(kEnabled, thp_enabled) &&
         write_line(kHugepages, std::to_string(nr_hugepages)) &&
         read_host().nr_hugepages == nr_hugepages;
}

}  // namespace faultline::oracle
