// SPDX-License-Identifier: Apache-2.0
//
// The text form of a program: writer and parser.
#include "tests/oracle/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace faultline::oracle {
namespace {

struct Name {
  std::string_view text;
  unsigned long value;
};

constexpr std::array kCalls = {
    Name{"mmap", 0},           Name{"munmap", 1},  Name{"mprotect", 2},
    Name{"madvise", 3},        Name{"mremap", 4},  Name{"mlock", 5},
    Name{"munlock", 6},        Name{"mincore", 7}, Name{"read", 8},
    Name{"write", 9},          Name{"fork", 10},   Name{"exit", 11},
    Name{"mlock_onfault", 12}, Name{"name", 13},   Name{"thp_disable", 14}};
constexpr std::array kNames = {Name{kAnonNames[0], 0}, Name{kAnonNames[1], 1},
                               Name{kAnonNames[2], 2}};
constexpr std::array kAdvice = {
    Name{"normal", 0},           Name{"random", 1},         Name{"sequential", 2},
    Name{"willneed", 3},         Name{"dontneed", 4},       Name{"free", 8},
    Name{"dontfork", 10},        Name{"dofork", 11},        Name{"hugepage", 14},
    Name{"nohugepage", 15},      Name{"dontdump", 16},      Name{"dodump", 17},
    Name{"wipeonfork", 18},      Name{"keeponfork", 19},    Name{"cold", 20},
    Name{"pageout", 21},         Name{"populate_read", 22}, Name{"populate_write", 23},
    Name{"dontneed_locked", 24}, Name{"collapse", 25},      Name{"guard_install", 102},
    Name{"guard_remove", 103},   Name{"unknown_99", 99}};
constexpr std::array kMapFlags = {
    Name{"shared", 0x01},     Name{"private", 0x02},
    Name{"fixed", 0x10},      Name{"noreserve", 0x4000},
    Name{"populate", 0x8000}, Name{"stack", 0x20000},
    Name{"hugetlb", 0x40000}, Name{"fixed_noreplace", 0x100000}};
constexpr std::array kMremapFlags = {Name{"maymove", 1}, Name{"fixed", 2},
                                     Name{"dontunmap", 4}};

std::string prot_text(unsigned prot) {
  return fmt::format("{}{}{}", prot & 1 ? 'r' : '-', prot & 2 ? 'w' : '-',
                     prot & 4 ? 'x' : '-');
}

template <std::size_t N>
std::string flags_text(unsigned flags, const std::array<Name, N>& names) {
  std::string out;
  for (const Name& n : names)
    if (flags & n.value) out += (out.empty() ? "" : ",") + std::string(n.text);
  return out.empty() ? "none" : out;
}

template <std::size_t N>
std::string_view name_of(unsigned long value, const std::array<Name, N>& names) {
  for (const Name& n : names)
    if (n.value == value) return n.text;
  return "?";
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

// One line being read, word by word, with its place for messages.
class Line {
 public:
  Line(std::string_view text, const std::string& file, unsigned number)
      : text_(text), file_(file), number_(number) {}

  bool more() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size();
  }
  std::string_view word(std::string_view what) {
    if (!more()) {
      start_ = at_;
      fail(fmt::format("expected {}", what));
    }
    start_ = at_;
    while (at_ < text_.size() && text_[at_] != ' ') ++at_;
    return text_.substr(start_, at_ - start_);
  }
  [[noreturn]] void fail(const std::string& message) const {
    throw ProgramError(fmt::format("{}:{}:{}: {}", file_, number_, start_ + 1, message));
  }
  std::uint64_t number(std::string_view what) { return to_number(word(what), what); }
  std::uint64_t offset() {
    const std::string_view w = word("an offset into the window such as +0x3000");
    if (w.front() != '+')
      fail(fmt::format("\"{}\" is not an offset: offsets start with '+'", w));
    const std::uint64_t n = to_number(w.substr(1), "an offset");
    if (n > kWindowBytes)
      fail(fmt::format("address outside the window: +{:#x} is beyond its {:#x} bytes", n,
                       kWindowBytes));
    return n;
  }
  template <std::size_t N>
  unsigned long one_of(std::string_view what, const std::array<Name, N>& names) {
    return lookup(word(what), what, names);
  }
  template <std::size_t N>
  unsigned flags(std::string_view what, const std::array<Name, N>& names) {
    std::string_view w = word(what);
    if (w == "none") return 0;
    unsigned value = 0;
    while (!w.empty()) {
      const std::size_t comma = std::min(w.find(','), w.size());
      value |= static_cast<unsigned>(lookup(w.substr(0, comma), what, names));
      w.remove_prefix(std::min(comma + 1, w.size()));
    }
    return value;
  }
  unsigned prot() {
    const std::string_view w = word("a protection such as rw-");
    unsigned value = 0;
    for (char c : w) {
      if (c == 'r')
        value |= 1;
      else if (c == 'w')
        value |= 2;
      else if (c == 'x')
        value |= 4;
      else if (c != '-')
        fail(fmt::format("unknown protection \"{}\": letters r, w, x and -", w));
    }
    return value;
  }
  unsigned proc() {
    const std::string_view w = word("a process, p0 to p2");
    if (w.size() != 2 || w[0] != 'p' || w[1] < '0' ||
        w[1] >= static_cast<char>('0' + kMaxProcs))
      fail(fmt::format("unknown process \"{}\": p0 to p{}", w, kMaxProcs - 1));
    return static_cast<unsigned>(w[1] - '0');
  }

 private:
  std::uint64_t to_number(std::string_view w, std::string_view what) const {
    std::uint64_t n = 0;
    const bool hex = w.starts_with("0x");
    const std::string_view digits = hex ? w.substr(2) : w;
    const auto r =
        std::from_chars(digits.data(), digits.data() + digits.size(), n, hex ? 16 : 10);
    if (r.ec != std::errc{} || r.ptr != digits.data() + digits.size() || digits.empty())
      fail(fmt::format("\"{}\" is not {}: a decimal or 0x number", w, what));
    return n;
  }
  template <std::size_t N>
  unsigned long lookup(std::string_view w, std::string_view what,
                       const std::array<Name, N>& names) {
    const Name* nearest = &names[0];
    for (const Name& n : names) {
      if (n.text == w) return n.value;
      if (edit_distance(w, n.text) < edit_distance(w, nearest->text)) nearest = &n;
    }
    std::string all;
    for (const Name& n : names) all += (all.empty() ? "" : " ") + std::string(n.text);
    fail(fmt::format("unknown {} \"{}\"\n  did you mean \"{}\"?\n  accepted: {}", what, w,
                     nearest->text, all));
  }

  std::string_view text_;
  const std::string& file_;
  unsigned number_;
  std::size_t at_ = 0, start_ = 0;
};

Op parse_op(Line& line) {
  Op op;
  op.proc = line.proc();
  op.call = static_cast<Call>(line.one_of("call", kCalls));
  if (op.call == Call::kExit) return op;
  if (op.call == Call::kFork) {
    op.value = static_cast<std::uint8_t>(line.proc());
    return op;
  }
  if (op.call == Call::kThpDisable) {
    op.value = line.number("1 or 0") != 0;
    return op;
  }
  op.off = line.offset();
  if (op.call == Call::kRead) return op;
  if (op.call == Call::kWrite) {
    const std::uint64_t value = line.number("a byte");
    if (value > 255) line.fail(fmt::format("{} is more than a byte holds", value));
    op.value = static_cast<std::uint8_t>(value);
    return op;
  }
  op.len = line.number("a length");
  switch (op.call) {
    case Call::kMmap:
      op.prot = line.prot();
      op.flags = line.flags("map flag", kMapFlags);
      break;
    case Call::kMprotect:
      op.prot = line.prot();
      break;
    case Call::kMadvise:
      op.advice = static_cast<int>(line.one_of("advice", kAdvice));
      break;
    case Call::kMremap:
      op.new_len = line.number("the new length");
      op.flags = line.flags("mremap flag", kMremapFlags);
      op.new_off = line.offset();
      break;
    case Call::kName:
      op.value = static_cast<std::uint8_t>(line.one_of("name", kNames));
      break;
    default:
      break;
  }
  return op;
}

}  // namespace

std::string errno_text(int error) {
  const char* name = strerrorname_np(error);
  return name != nullptr ? name : fmt::format("errno {}", error);
}

bool uses(const Op& op, const std::string& name) {
  if (name_of(static_cast<unsigned long>(op.call), kCalls) == name) return true;
  if (op.call == Call::kMadvise)
    return name_of(static_cast<unsigned long>(op.advice), kAdvice) == name;
  if (op.call != Call::kMmap && op.call != Call::kMremap) return false;
  const bool map = op.call == Call::kMmap;
  const auto has = [&](const Name& n) {
    return n.text == name && (op.flags & n.value) != 0;
  };
  return map ? std::any_of(kMapFlags.begin(), kMapFlags.end(), has)
             : std::any_of(kMremapFlags.begin(), kMremapFlags.end(), has);
}

bool known_name(const std::string& name) {
  const auto is = [&](const Name& n) { return n.text == name; };
  return std::any_of(kCalls.begin(), kCalls.end(), is) ||
         std::any_of(kAdvice.begin(), kAdvice.end(), is) ||
         std::any_of(kMapFlags.begin(), kMapFlags.end(), is) ||
         std::any_of(kMremapFlags.begin(), kMremapFlags.end(), is);
}

std::string to_text(const Op& op) {
  std::string head =
      fmt::format("p{} {}", op.proc, name_of(static_cast<unsigned long>(op.call), kCalls));
  switch (op.call) {
    case Call::kExit:
      return head;
    case Call::kFork:
      return fmt::format("{} p{}", head, op.value);
    case Call::kThpDisable:
      return fmt::format("{} {}", head, op.value);
    case Call::kName:
      return fmt::format("{} +{:#x} {:#x} {}", head, op.off, op.len, kAnonNames[op.value]);
    case Call::kRead:
      return fmt::format("{} +{:#x}", head, op.off);
    case Call::kWrite:
      return fmt::format("{} +{:#x} {}", head, op.off, op.value);
    case Call::kMmap:
      return fmt::format("{} +{:#x} {:#x} {} {}", head, op.off, op.len, prot_text(op.prot),
                         flags_text(op.flags, kMapFlags));
    case Call::kMprotect:
      return fmt::format("{} +{:#x} {:#x} {}", head, op.off, op.len, prot_text(op.prot));
    case Call::kMadvise:
      return fmt::format("{} +{:#x} {:#x} {}", head, op.off, op.len,
                         name_of(static_cast<unsigned long>(op.advice), kAdvice));
    case Call::kMremap:
      return fmt::format("{} +{:#x} {:#x} {:#x} {} +{:#x}", head, op.off, op.len,
                         op.new_len, flags_text(op.flags, kMremapFlags), op.new_off);
    default:
      return fmt::format("{} +{:#x} {:#x}", head, op.off, op.len);
  }
}

std::string to_text(const Program& program) {
  std::string out;
  for (const Op& op : program) out += to_text(op) + "\n";
  return out;
}

Program parse_program(const std::string& text, const std::string& file) {
  Program program;
  unsigned number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view raw = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    raw = raw.substr(0, raw.find('#'));
    Line line(raw, file, number);
    if (!line.more()) continue;
    program.push_back(parse_op(line));
    if (line.more()) {
      static_cast<void>(line.word("nothing"));
      line.fail("more words than this call takes");
    }
  }
  return program;
}

}  // namespace faultline::oracle
