// SPDX-License-Identifier: Apache-2.0
//
// The options as the library takes them.  Nothing here allocates or throws: it runs inside
// the first call of malloc.
#include "allocator/jemalloc/conf.h"

#include <charconv>

#include "allocator/jemalloc/conf_table.h"
#include "allocator/ptmalloc/cut.h"

namespace faultline::alloc::je {
namespace {

constexpr std::string_view kBool[] = {"false", "true"};
constexpr std::string_view kPurge[] = {"dontneed", "free", "vrange", "none"};
constexpr std::string_view kRule[] = {"ratio", "decay"};
constexpr std::int64_t kMaxMs = INT64_MAX / 1'000'000;

// A decay time means the decay rule.
void decay(Settings& s) {
  s.rule = PurgeRule::kDecay;
}

// Both releases have these.
constexpr Option kPurgeOption = {"purge", 0, 0, kPurge, [](Settings& s, std::int64_t v) {
                                   s.purge = static_cast<Purge>(v);
                                 }};
constexpr Option kTcacheOption = {"tcache", 0, 0, kBool,
                                  [](Settings& s, std::int64_t v) { s.tcache = v != 0; }};
constexpr Option narenas_option(std::int64_t most) {
  return {"narenas", 1, most, {}, [](Settings& s, std::int64_t v) {
            s.narenas = static_cast<unsigned>(v);
          }};
}

// lg_chunk: what holds a header and one page behind it, with pages of 64 KiB; sizes of
// blocks must fit into it.
constexpr Option kOptions[] = {
    {"dirty_decay_ms",
     -1,
     kMaxMs,
     {},
     [](Settings& s, std::int64_t v) {
       s.dirty_decay_ms = v;
       decay(s);
     }},
    {"lg_chunk",
     20,
     30,
     {},
     [](Settings& s, std::int64_t v) { s.lg_chunk = static_cast<unsigned>(v); }},
    {"lg_dirty_mult",
     -1,
     31,
     {},
     [](Settings& s, std::int64_t v) { s.lg_dirty_mult = static_cast<int>(v); }},
    {"lg_tcache_max",
     12,
     20,
     {},
     [](Settings& s, std::int64_t v) { s.lg_tcache_max = static_cast<unsigned>(v); }},
    {"munmap", 0, 0, kBool, [](Settings& s, std::int64_t v) { s.munmap = v != 0; }},
    {"muzzy_decay_ms",
     -1,
     kMaxMs,
     {},
     [](Settings& s, std::int64_t v) {
       s.muzzy_decay_ms = v;
       decay(s);
     }},
    narenas_option(4096),
    kPurgeOption,
    {"purge_rule", 0, 0, kRule,
     [](Settings& s, std::int64_t v) { s.rule = static_cast<PurgeRule>(v); }},
    kTcacheOption,
};

constexpr Option kOptions53[] = {
    {"dirty_decay_ms",
     -1,
     kMaxMs,
     {},
     [](Settings& s, std::int64_t v) { s.dirty_decay_ms = v; }},
    {"muzzy_decay_ms",
     -1,
     kMaxMs,
     {},
     [](Settings& s, std::int64_t v) { s.muzzy_decay_ms = v; }},
    narenas_option(1000),
    {"oversize_threshold",
     0,
     std::int64_t{1} << 62,
     {},
     [](Settings& s, std::int64_t v) {
       s.oversize_threshold = static_cast<std::uint64_t>(v);
     }},
    kPurgeOption,
    kTcacheOption,
};

}  // namespace

std::string_view purge_name(Purge purge) {
  return kPurge[static_cast<std::size_t>(purge)];
}

std::span<const Option> options() {
  return kOptions;
}
std::span<const Option> options_53() {
  return kOptions53;
}

const Option* find_option(std::span<const Option> table, std::string_view name) {
  for (const Option& o : table)
    if (o.name == name) return &o;
  return nullptr;
}

std::optional<std::int64_t> option_value(const Option& option, std::string_view text) {
  for (std::size_t i = 0; i < option.words.size(); ++i)
    if (option.words[i] == text) return static_cast<std::int64_t>(i);
  if (!option.words.empty()) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < option.min || value > option.max)
    return std::nullopt;
  return value;
}

ConfPair next_pair(std::string_view& text) {
  const std::size_t comma = text.find(',');
  const std::string_view pair = cut(text, 0, comma);
  text = comma == std::string_view::npos ? std::string_view{} : cut(text, comma + 1);
  const std::size_t colon = pair.find(':');
  if (colon == std::string_view::npos) return {pair, {}, false};
  return {cut(pair, 0, colon), cut(pair, colon + 1), true};
}

void apply_conf(std::string_view text, Settings& settings,
                void (*passed_over)(std::string_view pair)) {
  while (!text.empty()) {
    const std::string_view whole = cut(text, 0, text.find(','));
    const ConfPair pair = next_pair(text);
    const Option* const option = find_option(options(), pair.name);
    const auto value = option != nullptr && pair.has_value
                           ? option_value(*option, pair.value)
                           : std::nullopt;
    if (value)
      option->set(settings, *value);
    else
      passed_over(whole);
  }
}

}  // namespace faultline::alloc::je
