// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/native_run.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/platform/native.h"
#include "scenarios/run/with_allocator.h"
#include "scenarios/workloads/dispatch.h"

namespace faultline::scenario {
namespace {

// What the child sends: fixed numbers, then the counts and the failure as text.
struct Measured {
  std::int64_t elapsed_ns = 0, user_us = 0, sys_us = 0;
  std::uint64_t minor_faults = 0, major_faults = 0, max_rss_kib = 0, switches = 0;
};

struct Snapshot {
  timespec clock{};
  rusage usage{}, children{};  // those that were waited for
  static Snapshot now() {
    Snapshot s;
    clock_gettime(CLOCK_MONOTONIC, &s.clock);
    getrusage(RUSAGE_SELF, &s.usage);
    getrusage(RUSAGE_CHILDREN, &s.children);
    return s;
  }
};

std::int64_t micros(const timeval& t) {
  return std::int64_t{t.tv_sec} * 1'000'000 + t.tv_usec;
}

Measured difference(const Snapshot& a, const Snapshot& b) {
  Measured m;
  m.elapsed_ns = (b.clock.tv_sec - a.clock.tv_sec) * std::int64_t{1'000'000'000} +
                 b.clock.tv_nsec - a.clock.tv_nsec;
  const auto add = [&m](const rusage& from, const rusage& to) {
    const auto count = [](long x, long y) { return static_cast<std::uint64_t>(y - x); };
    m.user_us += micros(to.ru_utime) - micros(from.ru_utime);
    m.sys_us += micros(to.ru_stime) - micros(from.ru_stime);
    m.minor_faults += count(from.ru_minflt, to.ru_minflt);
    m.major_faults += count(from.ru_majflt, to.ru_majflt);
    m.switches += count(from.ru_nvcsw + from.ru_nivcsw, to.ru_nvcsw + to.ru_nivcsw);
    m.max_rss_kib = std::max(m.max_rss_kib, static_cast<std::uint64_t>(to.ru_maxrss));
  };
  add(a.usage, b.usage);
  add(a.children, b.children);
  return m;
}

void send(int pipe, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t sent = write(pipe, at, bytes);
    if (sent <= 0) _exit(3);
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

[[noreturn]] void child(const RunSpec& spec, int pipe) {
  const auto process = std::make_unique<alloc::NativeProcess>();
  workloads::Progress progress;
  workloads::Outcome outcome;
  alloc::Native platform(*process);
  const Snapshot start = Snapshot::now();
  with_allocator(platform, spec.allocator, [&](auto& allocator) {
    outcome = workloads::run(platform, allocator, spec.workload, progress);
  });
  const Measured measured = difference(start, Snapshot::now());
  send(pipe, &measured, sizeof measured);
  std::string text = outcome.failure + "\n";
  for (const auto& [name, value] : outcome.counts)
    text.append(name).append(" ").append(std::to_string(value)).append("\n");
  send(pipe, text.data(), text.size());
  _exit(0);
}

std::string receive_all(int pipe) {
  std::string all;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(pipe, buffer.data(), buffer.size())) > 0;)
    all.append(buffer.data(), static_cast<std::size_t>(got));
  return all;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return "the child was killed by signal " + std::to_string(WTERMSIG(status));
  return "the child ended with status " + std::to_string(WEXITSTATUS(status));
}

void add_metrics(const Measured& m, VariantResult& out) {
  constexpr std::int64_t kPsPerNs = 1000, kPsPerUs = 1'000'000;
  constexpr unsigned kRatioDecimals = 4;
  const Decimal elapsed = Decimal::seconds(Duration::ps(m.elapsed_ns * kPsPerNs));
  const auto seconds = [](std::int64_t us) {
    return Decimal::seconds(Duration::ps(us * kPsPerUs));
  };
  out.metrics = {
      {"elapsed_s", elapsed},
      {"user_s", seconds(m.user_us)},
      {"sys_s", seconds(m.sys_us)},
      {"sys_per_elapsed", Decimal::ratio(seconds(m.sys_us), elapsed, kRatioDecimals)},
      {"cpus_busy", Decimal::ratio(seconds(m.user_us + m.sys_us), elapsed, kRatioDecimals)},
      {"minor-faults", Decimal::count(m.minor_faults)},
      {"major-faults", Decimal::count(m.major_faults)},
      {"max_rss_kib", Decimal::count(m.max_rss_kib)},
      {"context-switches", Decimal::count(m.switches)}};
}

void add_outcome(std::string text, VariantResult& out) {
  const std::size_t line = text.find('\n');
  out.failure = text.substr(0, line);
  text.erase(0, line + 1);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::size_t space = text.find(' ');
    out.metrics.push_back({text.substr(0, space), Decimal::count(std::stoull(text.substr(
                                                      space + 1, end - space - 1)))});
    text.erase(0, end + 1);
  }
}

}  // namespace

VariantResult run_natively(const RunSpec& spec) {
  VariantResult out;
  out.name = spec.name;
  out.title = spec.title;
  if (spec.allocator.name == "jemalloc-5.3") {
    out.failure =
        "jemalloc-5.3 stands on the modelled kernel only; on this one it is "
        "LD_PRELOAD=libjemalloc.so.2 with any program";
    return out;
  }
  out.notes = spec.allocator.notes;
  int ends[2];
  if (pipe(ends) != 0) {
    out.failure = std::string("pipe: ") + std::strerror(errno);
    return out;
  }
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    child(spec, ends[1]);
  }
  close(ends[1]);
  std::string all = pid < 0 ? std::string() : receive_all(ends[0]);
  close(ends[0]);
  int status = 0;
  if (pid < 0) {
    out.failure = std::string("fork: ") + std::strerror(errno);
    return out;
  }
  waitpid(pid, &status, 0);
  Measured measured;
  if (status != 0 || all.size() <= sizeof measured) {
    out.failure = how_it_ended(status);
    return out;
  }
  std::memcpy(&measured, all.data(), sizeof measured);
  add_metrics(measured, out);
  add_outcome(all.substr(sizeof measured), out);
  return out;
}

std::string this_machine() {
  const alloc::NativeProcess process;
  const alloc::Native platform(const_cast<alloc::NativeProcess&>(process));
  const alloc::PlatformFacts& facts = platform.facts();
  utsname name{};
  uname(&name);
  const char* const mode = facts.thp_mode == 'a'   ? "always"
                           : facts.thp_mode == 'm' ? "madvise"
                                                   : "never";
  return std::string("Linux ") + name.release + " " + name.machine + ", " +
         std::to_string(facts.cpus) + " CPUs, " + std::to_string(facts.page_size) +
         "-byte pages, THP " + mode;
}

}  // namespace faultline::scenario
