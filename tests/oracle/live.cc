// SPDX-License-Identifier: Apache-2.0
//
// The live kernel's side.  Each program gets a runner: a forked process that does nothing
// but read an operation from a pipe, make the call, and answer; processes that the program
// forks are runners, too.  This process only looks, through /proc/PID/{smaps,pagemap,mem}.
//
// A runner's own page faults must not be counted: its code, stack and buffers are warmed
// first and after each fork, and minflt is read directly around the call.
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/oracle/outcome.h"
#include "tests/oracle/smaps.h"

namespace faultline::oracle {
namespace {

// What a runner needs; in one page-aligned block so that warming it is one loop.
struct alignas(4096) RunnerState {
  sigjmp_buf jump;
  volatile sig_atomic_t signal;
  std::array<unsigned char, kWindowBytes / 4096 + 16> vec;
};
RunnerState g_runner;  // of this process, when it is a runner

void on_fault(int number) {
  g_runner.signal = number;
  siglongjmp(g_runner.jump, 1);
}

long raw(long number, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0,
         unsigned long d = 0, unsigned long e = 0, unsigned long f = 0) {
  const long r = ::syscall(number, a, b, c, d, e, f);
  return r == -1 ? -errno : r;
}

std::int64_t as_offset(long r) {
  if (r < 0 && r > -4096) return r;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(r) - kWindowStart);
}

[[gnu::noinline]] std::int64_t resident_sum(std::uint64_t len) {
  std::int64_t sum = 0;
  for (std::uint64_t i = 0; i < (len + 4095) / 4096; ++i)
    if (g_runner.vec[i] & 1) sum += static_cast<std::int64_t>(i + 1);
  return sum;
}

long make_call(const Op& op) {
  const unsigned long at = kWindowStart + op.off;
  switch (op.call) {
    case Call::kMmap:
      return raw(SYS_mmap, at, op.len, op.prot, op.flags | MAP_ANONYMOUS,
                 static_cast<unsigned long>(-1), 0);
    case Call::kMunmap:
      return raw(SYS_munmap, at, op.len);
    case Call::kMprotect:
      return raw(SYS_mprotect, at, op.len, op.prot);
    case Call::kMadvise:
      return raw(SYS_madvise, at, op.len, static_cast<unsigned long>(op.advice));
    case Call::kMremap:
      return raw(SYS_mremap, at, op.len, op.new_len, op.flags, kWindowStart + op.new_off);
    case Call::kMlock:
      return raw(SYS_mlock, at, op.len);
    case Call::kMunlock:
      return raw(SYS_munlock, at, op.len);
    case Call::kMincore:
      return raw(SYS_mincore, at, op.len,
                 reinterpret_cast<unsigned long>(g_runner.vec.data()));
    case Call::kMlockOnfault:
      return raw(SYS_mlock2, at, op.len, MLOCK_ONFAULT);
    case Call::kName:
      return raw(
          SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, op.len,
          reinterpret_cast<unsigned long>(op.value ? kAnonNames[op.value] : nullptr));
    case Call::kThpDisable:
      return raw(SYS_prctl, PR_SET_THP_DISABLE, op.value);
    default:
      return -ENOSYS;
  }
}

// Without address sanitizer's look at its shadow, which faults, too.
__attribute__((no_sanitize("address", "undefined"))) void touch(const Op& op) {
  auto* const p = std::bit_cast<volatile unsigned char*>((kWindowStart + op.off) &
                                                         ~std::uint64_t{4095});
  if (op.call == Call::kWrite)
    *p = op.value;
  else
    static_cast<void>(*p);
}

unsigned long minflt() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<unsigned long>(usage.ru_minflt);
}

OpOutcome run_here(const Op& op) {
  OpOutcome out;
  const bool access = op.call == Call::kRead || op.call == Call::kWrite;
  g_runner.signal = 0;
  const unsigned long before = minflt();
  long r = 0;
  if (sigsetjmp(g_runner.jump, 0) == 0) {
    if (access)
      touch(op);
    else
      r = make_call(op);
  }
  out.minflt = minflt() - before;
  out.signal = g_runner.signal;
  if (op.call == Call::kMincore && r == 0) r = static_cast<long>(resident_sum(op.len));
  out.result = op.call == Call::kMmap || op.call == Call::kMremap ? as_offset(r) : r;
  return out;
}

struct Pipes {
  int command[2], answer[2];
};

void warm() {
  for (std::size_t i = 0; i < sizeof g_runner; i += 4096) {
    volatile char* p = reinterpret_cast<char*>(&g_runner) + i;
    *p = *p;
  }
  volatile char stack[32768];
  for (std::size_t i = 0; i < sizeof stack; i += 1024) stack[i] = 1;
  // Each call once with nothing to do, and an access that faults on nothing, far outside
  // the window.
  for (int i = 0; i < 2; ++i) {
    for (const Call call : {Call::kMmap, Call::kMunmap, Call::kMprotect, Call::kMadvise,
                            Call::kMremap, Call::kMlock, Call::kMunlock, Call::kMincore,
                            Call::kRead, Call::kWrite, Call::kMlockOnfault, Call::kName}) {
      Op op;
      op.call = call;
      op.off = kWindowBytes + (512 << 20) + 1;
      static_cast<void>(run_here(op));
    }
  }
}

[[noreturn]] void runner(const std::array<Pipes, kMaxProcs>& pipes, unsigned self);

OpOutcome fork_here(const std::array<Pipes, kMaxProcs>& pipes, unsigned child) {
  OpOutcome out;
  const pid_t pid = ::fork();
  if (pid == 0) runner(pipes, child);
  warm();
  out.result = pid < 0 ? -errno : pid;
  return out;
}

[[noreturn]] void runner(const std::array<Pipes, kMaxProcs>& pipes, unsigned self) {
  warm();
  const Pipes& mine = pipes[self];
  OpOutcome ready;
  if (::write(mine.answer[1], &ready, sizeof ready) != sizeof ready) _exit(1);
  Op op;
  while (::read(mine.command[0], &op, sizeof op) == static_cast<ssize_t>(sizeof op)) {
    if (op.call == Call::kExit) _exit(0);
    const OpOutcome out =
        op.call == Call::kFork ? fork_here(pipes, op.value) : run_here(op);
    if (::write(mine.answer[1], &out, sizeof out) != static_cast<ssize_t>(sizeof out))
      _exit(1);
  }
  _exit(0);
}

std::string read_file(const std::string& name) {
  std::string text;
  const int fd = ::open(name.c_str(), O_RDONLY);
  if (fd < 0) return text;
  char buffer[65536];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  ::close(fd);
  return text;
}

std::string read_proc(pid_t pid, const char* file) {
  return read_file(fmt::format("/proc/{}/{}", pid, file));
}

class Live final : public Side {
 public:
  Live() {
    for (Pipes& p : pipes_)
      if (::pipe2(p.command, O_CLOEXEC) != 0 || ::pipe2(p.answer, O_CLOEXEC) != 0)
        std::abort();
    if (g_drain == nullptr)
      g_drain =
          ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::fflush(nullptr);
    pids_[0] = ::fork();
    if (pids_[0] == 0) {
      prepare();
      // The driver's ends: without them a runner sees end of file when the driver is gone.
      for (const Pipes& p : pipes_) {
        ::close(p.command[1]);
        ::close(p.answer[0]);
      }
      runner(pipes_, 0);
    }
    static_cast<void>(answer(0));
  }
  ~Live() override {
    for (const pid_t pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL);
    ::waitpid(pids_[0], nullptr, 0);
    for (const Pipes& p : pipes_)
      for (const int fd : {p.command[0], p.command[1], p.answer[0], p.answer[1]})
        ::close(fd);
  }

  OpOutcome run(const Op& op) override {
    send(op);
    if (op.call == Call::kExit) {
      while (::kill(pids_[op.proc], 0) == 0 && !zombie(pids_[op.proc])) ::sched_yield();
      pids_[op.proc] = 0;
      return {};
    }
    OpOutcome out = answer(op.proc);
    if (op.call == Call::kFork) {
      pids_[op.value] = static_cast<pid_t>(out.result);
      static_cast<void>(answer(op.value));  // the child is warm
      out.result = 0;
      forked_ = true;
    }
    return out;
  }

  Counters counters() override { return parse_vmstat(read_file("/proc/vmstat")); }

  ProcState look(unsigned proc) override {
    ProcState state;
    drain(proc);
    state.vmas = parse_smaps(read_proc(pids_[proc], "smaps"));
    look_at_pages(proc, state);
    return state;
  }

 private:
  static void prepare() {
    // One CPU: per-CPU batches (lazyfree) then belong to this program alone.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &all);
    struct sigaction action = {};
    action.sa_handler = on_fault;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    signal(SIGCHLD, SIG_IGN);  // children are reaped by the kernel
  }
  static bool zombie(pid_t pid) {
    return read_proc(pid, "stat").find(") Z") != std::string::npos;
  }

  void send(const Op& op) {
    if (::write(pipes_[op.proc].command[1], &op, sizeof op) !=
        static_cast<ssize_t>(sizeof op))
      std::abort();
  }
  OpOutcome answer(unsigned proc) {
    OpOutcome out;
    if (::read(pipes_[proc].answer[0], &out, sizeof out) !=
        static_cast<ssize_t>(sizeof out)) {
      fmt::print(stderr, "oracle: the runner of p{} died\n", proc);
      std::abort();
    }
    return out;
  }
  // MADV_FREE marks pages in per-CPU batches; an madvise(MADV_FREE) of nothing of ours
  // empties the batch.
  void drain(unsigned proc) {
    Op op{.call = Call::kMadvise, .proc = proc};
    op.off = reinterpret_cast<std::uint64_t>(g_drain) - kWindowStart;
    op.len = 4096;
    op.advice = 8;
    send(op);
    static_cast<void>(answer(proc));
  }

  void look_at_pages(unsigned proc, ProcState& state) {
    const int pagemap =
        ::open(fmt::format("/proc/{}/pagemap", pids_[proc]).c_str(), O_RDONLY);
    std::vector<std::uint64_t>
        readable;  // addresses of present pages whose contents can be read
    for (const VmaState& vma : state.vmas) {
      const std::size_t pages = (vma.end - vma.start) / 4096;
      std::vector<std::uint64_t> entries(pages);
      const auto at = static_cast<off_t>((kWindowStart + vma.start) / 4096 * 8);
      if (::pread(pagemap, entries.data(), pages * 8, at) !=
          static_cast<ssize_t>(pages * 8))
        std::abort();
      for (std::size_t i = 0; i < pages; ++i) {
        const bool present = (entries[i] >> 63) != 0;
        state.pages += present ? 'p' : '.';
        if (present && vma.perms[0] == 'r')
          readable.push_back(kWindowStart + vma.start + i * 4096);
      }
    }
    ::close(pagemap);
    if (forked_)
      read_without_pins(pids_[proc], readable, state.bytes);
    else
      read_first_bytes(pids_[proc], readable, state.bytes);
  }

  // process_vm_readv pins what it reads, and a page shared by fork is copied for that; this
  // is slower.
  static void read_without_pins(pid_t pid, const std::vector<std::uint64_t>& at,
                                std::vector<std::uint8_t>& bytes) {
    const int mem = ::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY);
    bytes.resize(at.size());
    for (std::size_t i = 0; i < at.size(); ++i)
      if (::pread(mem, bytes.data() + i, 1, static_cast<off_t>(at[i])) != 1) std::abort();
    ::close(mem);
  }

  static void read_first_bytes(pid_t pid, const std::vector<std::uint64_t>& at,
                               std::vector<std::uint8_t>& bytes) {
    bytes.resize(at.size());
    std::array<struct iovec, IOV_MAX> remote;
    for (std::size_t done = 0; done < at.size();) {
      const std::size_t n = std::min<std::size_t>(at.size() - done, remote.size());
      for (std::size_t i = 0; i < n; ++i)
        remote[i] = {std::bit_cast<void*>(at[done + i]), 1};
      struct iovec local = {bytes.data() + done, n};
      if (::process_vm_readv(pid, &local, 1, remote.data(), n, 0) !=
          static_cast<ssize_t>(n))
        std::abort();
      done += n;
    }
  }

  static inline void* g_drain = nullptr;
  bool forked_ = false;
  std::array<Pipes, kMaxProcs> pipes_{};
  std::array<pid_t, kMaxProcs> pids_{};
};

}  // namespace

std::unique_ptr<Side> live_side() {
  return std::make_unique<Live>();
}

}  // namespace faultline::oracle
