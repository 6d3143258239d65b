// SPDX-License-Identifier: Apache-2.0
//
// Tunables and MALLOC_* variables as glibc takes them.  Nothing here allocates or throws:
// it runs inside the first call of malloc.
#include "allocator/ptmalloc/tunables.h"

#include "allocator/ptmalloc/cut.h"
#include "allocator/ptmalloc/tunable_table.h"

namespace faultline::alloc {
namespace {

constexpr std::uint64_t kNoLimit = kNoTunableLimit;

// Any of these four fixes the thresholds (do_set_*: mp_.no_dyn_threshold = 1).
void fix(Settings& s) {
  s.dynamic_threshold = false;
}

unsigned digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return 99;
}

bool has_tcache(const ReleaseProfile& r) {
  return r.tcache != TcacheCreation::kNever;
}

constexpr Tunable kTunables[] = {
    {"glibc.malloc.arena_max", 1, kNoLimit,
     [](Settings& s, std::uint64_t v) { s.arena_max = v; }},
    {"glibc.malloc.arena_test", 1, kNoLimit,
     [](Settings& s, std::uint64_t v) { s.arena_test = v; }},
    {"glibc.malloc.hugetlb", 0, kNoLimit,
     [](Settings& s, std::uint64_t v) { s.hugetlb = v; },
     [](const ReleaseProfile& r) {
       return r.huge_page_tunable == HugePageTunable::kHugetlb;
     }},
    {"glibc.malloc.mmap_max", 0, kNoLimit,
     [](Settings& s, std::uint64_t v) {
       s.mmap_max = v;
       fix(s);
     }},
    {"glibc.malloc.mmap_threshold", 0, kNoLimit,
     [](Settings& s, std::uint64_t v) {
       s.mmap_threshold = v;
       fix(s);
     }},
    {"glibc.malloc.mxfast", 0, 160, [](Settings& s, std::uint64_t v) { s.mxfast = v; }},
    {"glibc.malloc.perturb", 0, 255,
     [](Settings& s, std::uint64_t v) { s.perturb = static_cast<unsigned>(v); }},
    {"glibc.malloc.tcache_count", 0, 65535,
     [](Settings& s, std::uint64_t v) { s.tcache_count = static_cast<int>(v); },
     has_tcache},
    {"glibc.malloc.tcache_max", 0, kNoLimit,
     [](Settings& s, std::uint64_t v) { s.tcache_max = v; }, has_tcache},
    {"glibc.malloc.thp_pagesize", 0, kNoLimit,
     [](Settings& s, std::uint64_t v) { s.thp_pagesize = v; },
     [](const ReleaseProfile& r) {
       return r.huge_page_tunable == HugePageTunable::kThpPagesize;
     }},
    {"glibc.malloc.top_pad", 0, kNoLimit,
     [](Settings& s, std::uint64_t v) {
       s.top_pad = v;
       fix(s);
     }},
    {"glibc.malloc.trim_threshold", 0, kNoLimit,
     [](Settings& s, std::uint64_t v) {
       s.trim_threshold = v;
       fix(s);
     }},
};

}  // namespace

std::span<const Tunable> tunables() {
  return kTunables;
}

const Tunable* find_tunable(std::string_view name) {
  for (const Tunable& t : tunables())
    if (t.name == name) return &t;
  return nullptr;
}

TunableNumber tunable_number(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  const bool negative = at < text.size() && text[at] == '-';
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  if (at == text.size() || text[at] < '0' || text[at] > '9') return {0, 0};
  unsigned base = 10;
  if (text[at] == '0') {
    const bool hex = at + 1 < text.size() && (text[at + 1] == 'x' || text[at + 1] == 'X');
    base = hex ? 16 : 8;
    at += hex ? 2 : 0;
  }
  std::uint64_t value = 0;
  for (; at < text.size(); ++at) {
    const unsigned digit = digit_of(text[at]);
    if (digit >= base) break;
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, digit, &value))
      return {UINT64_MAX, at};
  }
  return {negative ? -value : value, at};
}

namespace {

class Reader {
 public:
  Reader(const ReleaseProfile& release, Settings& settings, TellNote listener, void* arg)
      : release_(release), settings_(settings), tell_(listener), arg_(arg) {}

  // All pairs in turn.
  void lenient(std::string_view text) {
    while (!text.empty()) {
      const std::size_t colon = text.find(':');
      const std::string_view pair = cut(text, 0, colon);
      const std::size_t equals = pair.find('=');
      if (equals != std::string_view::npos)
        set(cut(pair, 0, equals), cut(pair, equals + 1));
      else if (!pair.empty())
        tell(TunableFault::kNoValue, pair, {});
      if (colon == std::string_view::npos) return;
      text = cut(text, colon + 1);
    }
  }
  // All, or none.
  void strict(std::string_view text) {
    if (text.empty()) return;
    for (std::string_view rest = text;;) {
      const std::size_t colon = rest.find(':');
      const std::string_view pair = cut(rest, 0, colon);
      const std::size_t equals = pair.find('=');
      if (equals == std::string_view::npos ||
          pair.find('=', equals + 1) != std::string_view::npos) {
        tell(TunableFault::kNoValue, pair, {});
        tell(TunableFault::kAllIgnored, text, {});
        return;
      }
      if (colon == std::string_view::npos) break;
      rest = cut(rest, colon + 1);
    }
    lenient(text);
  }
  void set(std::string_view name, std::string_view value) {
    const Tunable* const tunable = find_tunable(name);
    if (tunable == nullptr)
      tell(TunableFault::kUnknown, name, value);
    else if (!tunable->known_to(release_))
      tell(TunableFault::kNotOfRelease, name, value);
    else
      set_value(*tunable, name, value);
  }
  void set_value(const Tunable& tunable, std::string_view name, std::string_view value) {
    const TunableNumber number = tunable_number(value);
    const bool whole = number.length == value.size();
    if (!whole && release_.strict_tunables) {
      tell(TunableFault::kNotANumber, name, value);
      return;
    }
    if (number.value < tunable.min || number.value > tunable.max) {
      tell(TunableFault::kOutOfRange, name, value);
      return;
    }
    if (!whole || value.empty()) tell(TunableFault::kPartOfANumber, name, value);
    tunable.set(settings_, number.value);
  }
  void tell(TunableFault fault, std::string_view name, std::string_view value) const {
    if (tell_ != nullptr) tell_(arg_, {fault, name, value});
  }

 private:
  const ReleaseProfile& release_;
  Settings& settings_;
  TellNote tell_;
  void* arg_;
};

}  // namespace

void apply_tunables(std::string_view text, const ReleaseProfile& release,
                    Settings& settings, TellNote tell, void* arg) {
  Reader reader(release, settings, tell, arg);
  if (!release.has_tunables && !text.empty())
    reader.tell(TunableFault::kNoTunables, text, {});
  else if (release.strict_tunables)
    reader.strict(text);
  else
    reader.lenient(text);
}

void apply_variable(std::string_view name, std::string_view value,
                    const ReleaseProfile& release, Settings& settings, TellNote tell,
                    void* arg) {
  struct Variable {
    std::string_view name, tunable;
  };
  constexpr Variable kVariables[] = {
      {"MALLOC_ARENA_MAX", "glibc.malloc.arena_max"},
      {"MALLOC_ARENA_TEST", "glibc.malloc.arena_test"},
      {"MALLOC_MMAP_MAX_", "glibc.malloc.mmap_max"},
      {"MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold"},
      {"MALLOC_PERTURB_", "glibc.malloc.perturb"},
      {"MALLOC_TOP_PAD_", "glibc.malloc.top_pad"},
      {"MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold"},
  };
  Reader reader(release, settings, tell, arg);
  for (const Variable& v : kVariables) {
    if (v.name != name) continue;
    reader.set_value(*find_tunable(v.tunable), name, value);
    return;
  }
  reader.tell(TunableFault::kNoSuchVariable, name, value);
}

}  // namespace faultline::alloc
