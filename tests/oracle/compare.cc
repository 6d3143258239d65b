// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/compare.h"

#include <fmt/format.h>

#include <array>

namespace faultline::oracle {
namespace {

std::string show(const OpOutcome& o) {
  std::string r = o.result < 0 && o.result > -4096 ? errno_text(static_cast<int>(-o.result))
                                                   : fmt::format("{:#x}", o.result);
  if (o.signal != 0)
    r = o.signal == 11  ? "SIGSEGV"
        : o.signal == 7 ? "SIGBUS"
                        : fmt::format("signal {}", o.signal);
  return fmt::format("{} minflt {}", r, o.minflt);
}

std::string show(const VmaState& v) {
  std::string out = fmt::format("+{:#x}-+{:#x} {} {}", v.start, v.end, v.perms, v.name);
  for (std::size_t i = 0; i < v.fields.size(); ++i)
    if (v.fields[i] != 0) out += fmt::format(" {} {}", kSmapsFields[i], v.fields[i]);
  return fmt::format("{} [{}]", out, v.flags);
}

// The first line that differs, with its neighbours on both sides.
std::string difference(const ProcState& a, const ProcState& b) {
  for (std::size_t i = 0; i < std::max(a.vmas.size(), b.vmas.size()); ++i) {
    const std::string x = i < a.vmas.size() ? show(a.vmas[i]) : "(no VMA)";
    const std::string y = i < b.vmas.size() ? show(b.vmas[i]) : "(no VMA)";
    if (x != y) return fmt::format("VMA {}:\n    kernel {}\n    model  {}", i, x, y);
  }
  if (a.pages != b.pages) {
    std::size_t i = 0, skipped = 0;
    while (i < a.pages.size() && i < b.pages.size() && a.pages[i] == b.pages[i]) ++i;
    for (const VmaState& v : a.vmas) {
      const std::size_t n = (v.end - v.start) / 4096;
      if (i < skipped + n)
        return fmt::format("page +{:#x}: kernel '{}' model '{}'",
                           v.start + (i - skipped) * 4096, a.pages[i],
                           i < b.pages.size() ? b.pages[i] : '?');
      skipped += n;
    }
    return "presence of pages";
  }
  std::size_t i = 0;
  while (i < a.bytes.size() && i < b.bytes.size() && a.bytes[i] == b.bytes[i]) ++i;
  if (i < a.bytes.size() && i < b.bytes.size())
    return fmt::format("contents of present page number {}: kernel {} model {}", i,
                       a.bytes[i], b.bytes[i]);
  return fmt::format("number of readable pages: kernel {} model {}", a.bytes.size(),
                     b.bytes.size());
}

// Which processes of the program live, so that operations of others can be passed over.
class Alive {
 public:
  // Whether `op` can be run; follows fork and exit.
  bool take(const Op& op) {
    if (!alive_[op.proc]) return false;
    if (op.call == Call::kFork) {
      if (alive_[op.value]) return false;
      alive_[op.value] = true;
    }
    if (op.call == Call::kExit) {
      if (op.proc == 0) return false;
      alive_[op.proc] = false;
    }
    return true;
  }
  [[nodiscard]] bool operator[](unsigned proc) const { return alive_[proc]; }

 private:
  std::array<bool, kMaxProcs> alive_ = {true, false, false};
};

std::optional<std::string> look_at_all(const Alive& alive, Side& reference, Side& tested) {
  for (unsigned p = 0; p < kMaxProcs; ++p) {
    if (!alive[p]) continue;
    const ProcState a = reference.look(p), b = tested.look(p);
    if (!(a == b)) return fmt::format("state of p{}: {}", p, difference(a, b));
  }
  return std::nullopt;
}

std::optional<std::string> count_differently(const Counters& a0, const Counters& a,
                                             const Counters& b0, const Counters& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] - a0[i] != b[i] - b0[i])
      return fmt::format("{} since the start: kernel {} model {}", kVmstatCounters[i],
                         a[i] - a0[i], b[i] - b0[i]);
  return std::nullopt;
}

}  // namespace

std::optional<Divergence> compare(const Program& program, Side& reference, Side& tested,
                                  const CompareOptions& options) {
  Alive alive;
  const Counters a0 = reference.counters(), b0 = tested.counters();
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Op& op = program[i];
    if (!alive.take(op)) continue;
    const OpOutcome a = reference.run(op), b = tested.run(op);
    if (!(a == b))
      return Divergence{i, fmt::format("{}\n    kernel {}\n    model  {}", to_text(op),
                                       show(a), show(b))};
    if ((i + 1) % options.look_every != 0 && i + 1 != program.size()) continue;
    if (auto what = look_at_all(alive, reference, tested))
      return Divergence{i, to_text(op) + "\n  " + *what};
    if (!options.counters) continue;
    if (auto what = count_differently(a0, reference.counters(), b0, tested.counters()))
      return Divergence{i, to_text(op) + "\n  " + *what};
  }
  return std::nullopt;
}

Program shrink(Program program, const MakeSide& reference, const MakeSide& tested,
               const CompareOptions& options) {
  const auto fails = [&](const Program& p) {
    const auto a = reference(), b = tested();
    return compare(p, *a, *b, options);
  };
  if (const auto d = fails(program)) program.resize(d->at + 1);
  for (std::size_t chunk = std::max<std::size_t>(program.size() / 2, 1); chunk > 0;
       chunk /= 2) {
    for (std::size_t at = 0; at + chunk <= program.size();) {
      Program shorter = program;
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(at),
                    shorter.begin() + static_cast<std::ptrdiff_t>(at + chunk));
      if (const auto d = fails(shorter)) {
        program = std::move(shorter);
        program.resize(d->at + 1);
      } else {
        at += chunk;
      }
    }
  }
  return program;
}

}  // namespace faultline::oracle
