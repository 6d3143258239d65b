// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/explain.h"

#include <algorithm>
#include <utility>

#include "scenarios/run/phrase.h"

namespace faultline::scenario {
namespace {

// Shares below which a thing isn't worth a sentence, in thousandths.
constexpr std::int64_t kNextFunction = 50;  // of busy time
constexpr std::int64_t kLockWait = 20;      // of the tasks' lives
constexpr std::int64_t kSpinning = 50;      // of busy time
constexpr std::int64_t kSecondBlame = 100;  // of the lock's waiting

bool at_least(Duration part, Duration whole, std::int64_t thousandths) {
  return part > Duration{} &&
         compare(Decimal::ratio(Decimal::seconds(part), Decimal::seconds(whole), 3),
                 Decimal(thousandths, 3)) >= 0;
}

// The stack with most of the time of the function that leads.
const Evidence::Stack* main_stack(const Evidence& run, const std::string& function) {
  const Evidence::Stack* best = nullptr;
  for (const Evidence::Stack& s : run.stacks)
    if (!s.frames.empty() && s.frames.back() == function &&
        (best == nullptr || s.busy > best->busy))
      best = &s;
  return best;
}

std::string where_cpu_time_went(const Evidence& run) {
  const std::vector<FunctionTime> functions = time_by_function(run);
  if (functions.empty()) return "No CPU time was used.";
  const FunctionTime& first = functions.front();
  std::string s = say_percent(first.busy, run.busy()) + " of the " +
                  say_seconds(run.busy()) + " of CPU time is spent in " + first.name;
  const Evidence::Stack* stack = main_stack(run, first.name);
  if (stack != nullptr && stack->frames.size() > 1)
    s += " (" + say_place(stack->frames, 4) + ")";
  if (functions.size() > 1 && at_least(functions[1].busy, run.busy(), kNextFunction))
    s += ", " + say_percent(functions[1].busy, run.busy()) + " in " + functions[1].name;
  return s + "; " + say_percent(run.sys, run.busy()) + " of it is system time.";
}

std::string how_parallel(const Evidence& run) {
  std::string s = "On average " + say_ratio(run.busy(), run.elapsed) + " of " +
                  std::to_string(run.cpus) + " CPUs are busy; " +
                  (run.tasks == 1 ? "the one task spends "
                                  : "the " + std::to_string(run.tasks) + " tasks spend ") +
                  say_percent(run.busy(), run.lives()) + " of all time on a CPU";
  const std::pair<Duration, const char*> states[] = {
      {run.lock_wait, "asleep waiting for a lock"},
      {run.runnable, "waiting for a CPU"},
      {run.sleeping, "in a sleep of their own"}};
  for (const auto& [time, what] : states)
    if (time > Duration{}) s += ", " + say_percent(time, run.lives()) + " " + what;
  return s + ".";
}

const char* as_mode(LockMode mode) {
  return mode == LockMode::kRead ? "reading" : "writing";
}

bool is_rw(const Evidence::Lock& lock) {
  return lock.read.acquired > 0;
}

// Blames of one lock with equal innermost functions and modes put together, longest first.
std::vector<Evidence::Blame> grouped(const Evidence::Lock& lock) {
  std::vector<Evidence::Blame> groups;
  const auto same = [](const Frames& a, const Frames& b) {
    return say_place(a, 2) == say_place(b, 2);
  };
  for (const Evidence::Blame& b : lock.blames) {
    const auto it =
        std::find_if(groups.begin(), groups.end(), [&](const Evidence::Blame& g) {
          return g.waiter_mode == b.waiter_mode && g.holder_mode == b.holder_mode &&
                 same(g.waiter, b.waiter) && same(g.holder, b.holder);
        });
    if (it == groups.end()) {
      groups.push_back(b);
    } else {
      it->wait += b.wait;
      it->count += b.count;
    }
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.wait > b.wait; });
  return groups;
}

std::string blame_sentence(const Evidence::Lock& lock, const Evidence::Blame& b,
                           bool first) {
  std::string s = say_percent(b.wait, lock.wait()) +
                  (first ? " of the wait for " + lock.name : "") + " is ";
  if (is_rw(lock)) s += b.waiter_mode == LockMode::kRead ? "readers in " : "writers in ";
  s += say_place(b.waiter, 2) + " waiting while " + say_place(b.holder, 3) + " holds it";
  if (is_rw(lock)) s += std::string(" for ") + as_mode(b.holder_mode);
  return s;
}

std::string holding(const Evidence& run, const Evidence::Lock& lock) {
  if (!is_rw(lock))
    return "held " + say_percent(lock.write.hold, run.elapsed) + " of the time";
  return "on average " + say_ratio(lock.read.hold, run.elapsed) +
         " readers hold it, writers " + say_percent(lock.write.hold, run.elapsed) +
         " of the time";
}

// The lock that was waited for most, how it is held, and who waits for whom.
std::vector<std::string> which_lock(const Evidence& run) {
  const auto most =
      std::max_element(run.locks.begin(), run.locks.end(),
                       [](const auto& a, const auto& b) { return a.wait() < b.wait(); });
  if (most == run.locks.end() || !(at_least(most->wait(), run.lives(), kLockWait) ||
                                   at_least(run.spinning, run.busy(), kSpinning)))
    return {};
  Duration all;
  for (const Evidence::Lock& l : run.locks) all += l.wait();
  std::string s = "The lock waited for is " + most->name + ": " +
                  say_seconds(most->wait()) + ", " + say_percent(most->wait(), all) +
                  " of all waiting for locks";
  if (is_rw(*most))
    s += " (" + say_percent(most->write.wait, most->wait()) + " of it by writers)";
  s += "; " + holding(run, *most) + ".";
  std::vector<std::string> out{s};

  const std::vector<Evidence::Blame> blames = grouped(*most);
  if (blames.empty()) return out;
  s = blame_sentence(*most, blames[0], true);
  if (blames.size() > 1 && at_least(blames[1].wait, most->wait(), kSecondBlame))
    s += "; " + blame_sentence(*most, blames[1], false);
  out.push_back(s + ".");
  return out;
}

std::string spinning_sentence(const Evidence& run) {
  const Evidence::Stack* most = nullptr;
  for (const Evidence::Stack& s : run.stacks)
    if (most == nullptr || s.spinning > most->spinning) most = &s;
  return say_percent(run.spinning, run.busy()) + " of CPU time (" +
         say_seconds(run.spinning) + ") is spinning for a lock, most of it in " +
         say_place(most->frames, 3) + ".";
}

// The function whose CPU time differs most, either way.
FunctionTime largest_change(const Evidence& base, const Evidence& run) {
  FunctionTime best;
  const auto size = [](Duration d) { return d < Duration{} ? Duration{} - d : d; };
  const auto consider = [&](const std::string& name, Duration change) {
    if (size(change) > size(best.busy)) best = {name, change};
  };
  const std::vector<FunctionTime> before = time_by_function(base);
  const std::vector<FunctionTime> now = time_by_function(run);
  const auto in = [](const std::vector<FunctionTime>& all, const std::string& name) {
    const auto it =
        std::find_if(all.begin(), all.end(), [&](const auto& f) { return f.name == name; });
    return it == all.end() ? Duration{} : it->busy;
  };
  for (const FunctionTime& f : now) consider(f.name, f.busy - in(before, f.name));
  for (const FunctionTime& f : before)
    if (in(now, f.name) == Duration{}) consider(f.name, Duration{} - f.busy);
  return best;
}

// Changes below this share of the first variant's value are called none.
constexpr std::int64_t kNoChangePercent = 2;

bool matters(Decimal before, Decimal now) {
  const Decimal d = now - before;
  const Decimal size(d.units() < 0 ? -d.units() : d.units(), d.decimals());
  return compare(Decimal::ratio(size, before, 4), Decimal(kNoChangePercent, 2)) >= 0;
}

// What tells two runs apart: a rate if both have it, else the time they took.
struct Yardstick {
  Yardstick(const NamedEvidence& base, const NamedEvidence& run)
      : is_rate(base.rate && run.rate && base.rate->name == run.rate->name),
        name(is_rate ? base.rate->name : "elapsed"),
        before(is_rate ? base.rate->value : Decimal::seconds(base.run->elapsed)),
        now(is_rate ? run.rate->value : Decimal::seconds(run.run->elapsed)) {}
  [[nodiscard]] bool differs() const { return matters(before, now); }
  [[nodiscard]] bool faster() const { return (compare(now, before) > 0) == is_rate; }

  bool is_rate;
  std::string name;
  Decimal before, now;
};

// One sentence without its subject.
std::string difference(const Yardstick& by, const Evidence& base, const Evidence& run) {
  const Decimal busy_before = Decimal::seconds(base.busy());
  const Decimal busy_now = Decimal::seconds(run.busy());
  std::string s = by.name + " " + say_change(by.before, by.now) + ", CPU time " +
                  say_change(busy_before, busy_now);
  if (!by.differs() && !matters(busy_before, busy_now)) return "no difference: " + s + ".";
  s += ", CPUs busy " + say_ratio(base.busy(), base.elapsed) + " -> " +
       say_ratio(run.busy(), run.elapsed);
  const FunctionTime change = largest_change(base, run);
  if (change.busy != Duration{})
    s += "; most of it in " + change.name + (change.busy > Duration{} ? " (+" : " (") +
         say_seconds(change.busy) + " of CPU time)";
  return s + "; time asleep for locks " +
         say_change(Decimal::seconds(base.lock_wait), Decimal::seconds(run.lock_wait)) +
         ".";
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return out;
}

}  // namespace

std::vector<FunctionTime> time_by_function(const Evidence& run) {
  std::vector<FunctionTime> all;
  for (const Evidence::Stack& s : run.stacks) {
    if (s.frames.empty() || s.busy == Duration{}) continue;
    const auto it = std::find_if(all.begin(), all.end(), [&](const FunctionTime& f) {
      return f.name == s.frames.back();
    });
    if (it == all.end())
      all.push_back({s.frames.back(), s.busy});
    else
      it->busy += s.busy;
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.busy > b.busy; });
  return all;
}

std::vector<std::string> explain(const Evidence& run) {
  std::vector<std::string> out{where_cpu_time_went(run), how_parallel(run)};
  for (std::string& s : which_lock(run)) out.push_back(std::move(s));
  if (at_least(run.spinning, run.busy(), kSpinning)) out.push_back(spinning_sentence(run));
  return out;
}

std::vector<std::string> compare_variants(const std::vector<NamedEvidence>& runs) {
  std::vector<std::string> out;
  if (runs.size() < 2) return out;
  const NamedEvidence& base = runs.front();
  std::vector<std::string> faster, slower, same;
  std::string same_in = "elapsed time";
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const Yardstick by(base, runs[i]);
    out.push_back(runs[i].name + ": " + difference(by, *base.run, *runs[i].run));
    (!by.differs() ? same : by.faster() ? faster : slower).push_back(runs[i].name);
    if (by.is_rate) same_in = by.name;
  }
  std::vector<std::string> parts;
  if (!faster.empty()) parts.push_back("faster: " + list_of(faster));
  if (!slower.empty()) parts.push_back("slower: " + list_of(slower));
  if (!same.empty())
    parts.push_back("no difference in " + same_in + " (below " +
                    std::to_string(kNoChangePercent) + " %): " + list_of(same));
  std::string s = "Against " + base.name + ", ";
  for (std::size_t i = 0; i < parts.size(); ++i) s += (i == 0 ? "" : "; ") + parts[i];
  out.push_back(s + ".");
  return out;
}

}  // namespace faultline::scenario
