// SPDX-License-Identifier: Apache-2.0
//
// Tunables and MALLOC_* variables as glibc takes them.  Nothing here allocates or throws:
// it runs inside the first call of malloc.
#include "allocator/ptmalloc/tunables.h"

#include <charconv>

#include "allocator/ptmalloc/cut.h"
#include "allocator/ptmalloc/tunable_table.h"

namespace faultline::alloc {
namespace {

constexpr std::uint64_t kNoLimit = kNoTunableLimit;

// Any of these four fixes the thresholds (do_set_*: mp_.no_dyn_threshold = 1).
void fix(Settings& s) {
  s.dynamic_threshold = false;
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

std::optional<std::uint64_t> tunable_number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text.front() == '0') {
    base = 8;
    text.remove_prefix(1);
  }
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

namespace {

// True if it was taken.
bool set_if_good(const Tunable* tunable, std::string_view text, Settings& settings) {
  const std::optional<std::uint64_t> value = tunable_number(text);
  if (tunable == nullptr || !value || *value < tunable->min || *value > tunable->max)
    return false;
  tunable->set(settings, *value);
  return true;
}

}  // namespace

void apply_tunables(std::string_view text, const ReleaseProfile& release,
                    Settings& settings) {
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    const std::string_view pair = cut(text, 0, colon);
    text = colon == std::string_view::npos ? std::string_view{} : cut(text, colon + 1);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const Tunable* const tunable = find_tunable(cut(pair, 0, equals));
    if (tunable != nullptr && tunable->known_to(release))
      set_if_good(tunable, cut(pair, equals + 1), settings);
  }
}

bool apply_variable(std::string_view name, std::string_view value, Settings& settings) {
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
  for (const Variable& v : kVariables)
    if (v.name == name) return set_if_good(find_tunable(v.tunable), value, settings);
  return false;
}

}  // namespace faultline::alloc
