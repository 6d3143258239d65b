// SPDX-License-Identifier: Apache-2.0
#include "scenarios/workloads/ops_program.h"

#include <charconv>
#include <optional>

#include "allocator/ptmalloc/cut.h"

namespace faultline::workloads {
namespace {

constexpr std::string_view kCommands =
    "fork, free, mallopt, parent, read, repeat, sbrk, sleep, threads, trim, write, end, "
    "NAME = malloc …";
constexpr std::string_view kAllocations = "calloc, malloc, memalign, realloc";
constexpr std::string_view kParams =
    "arena_max, arena_test, mmap_max, mmap_threshold, mxfast, perturb, top_pad, "
    "trim_threshold";

struct ParamName {
  std::string_view name;
  int value;
};
// As in malloc.h.
constexpr ParamName kParamNames[] = {
    {"mxfast", 1},    {"trim_threshold", -1}, {"top_pad", -2},    {"mmap_threshold", -3},
    {"mmap_max", -4}, {"perturb", -6},        {"arena_test", -7}, {"arena_max", -8}};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// The words of one line.
class Words {
 public:
  Words(std::string_view line, unsigned number) : line_(line), number_(number) {}

  [[nodiscard]] bool done() {
    skip();
    return at_ == line_.size();
  }
  std::string_view next() {
    skip();
    start_ = at_;
    while (at_ < line_.size() && !is_space(line_[at_])) ++at_;
    return alloc::cut(line_, start_, at_ - start_);
  }
  // Where the last word began.
  [[nodiscard]] OpsProblem problem(const char* what, std::string_view accepted = {}) const {
    return {what, number_, static_cast<unsigned>(start_) + 1,
            alloc::cut(line_, start_, at_ - start_), accepted};
  }

 private:
  void skip() {
    while (at_ < line_.size() && is_space(line_[at_])) ++at_;
  }
  std::string_view line_;
  unsigned number_;
  std::size_t at_ = 0, start_ = 0;
};

// 120000, 16K, 2M, 1G, with a sign where one may stand.
std::optional<std::int64_t> number(std::string_view text) {
  unsigned shift = 0;
  if (!text.empty()) {
    const char last = text.back();
    shift = last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
    if (shift != 0) text.remove_suffix(1);
  }
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  std::int64_t scaled = 0;
  if (__builtin_mul_overflow(value, std::int64_t{1} << shift, &scaled)) return std::nullopt;
  return scaled;
}

class Reader {
 public:
  explicit Reader(OpsProgram& program) : program_(program) {}

  OpsProblem line(std::string_view text, unsigned number) {
    Words words(alloc::cut(text, 0, text.find('#')), number);
    if (words.done()) return {};
    if (program_.size == OpsProgram::kMostOps) {
      words.next();
      return words.problem("the program has more than 1024 operations");
    }
    MallocOp op;
    OpsProblem problem = operation(words, op);
    if (problem.what == nullptr && !words.done()) {
      words.next();
      problem = words.problem("nothing more may stand on this line");
    }
    if (problem.what == nullptr) add(op, number);
    return problem;
  }
  OpsProblem end() const {
    if (depth_ == 0) return {};
    return {"this has no end", open_line_[depth_ - 1], 1, name_of(innermost().kind), {}};
  }

 private:
  static constexpr std::size_t kMostDepth = 8;

  OpsProblem operation(Words& words, MallocOp& op) {
    const std::string_view first = words.next();
    if (first == "free") return freeing(words, op);
    if (first == "write" || first == "read") {
      op.kind = first == "write" ? MallocOp::kWrite : MallocOp::kRead;
      return known_stack(words, op);
    }
    if (first == "trim") return numbers(words, op, MallocOp::kTrim, 1, 0);
    if (first == "sbrk") return numbers(words, op, MallocOp::kSbrk, 1, INT64_MIN);
    if (first == "sleep") return numbers(words, op, MallocOp::kSleep, 1, 0);
    if (first == "mallopt") return mallopt(words, op);
    for (const MallocOp::Kind kind :
         {MallocOp::kRepeat, MallocOp::kThreads, MallocOp::kFork})
      if (first == name_of(kind)) return opening(words, op, kind);
    if (first == "parent") {
      op.kind = MallocOp::kParent;
      return depth_ == 0 || innermost().kind != MallocOp::kFork || innermost().parent != 0
                 ? words.problem("no fork is open here")
                 : OpsProblem{};
    }
    if (first == "end") {
      op.kind = MallocOp::kEnd;
      return depth_ == 0 ? words.problem("there is nothing to end") : OpsProblem{};
    }
    const OpsProblem unknown = words.problem("unknown operation", kCommands);
    if (words.done() || words.next() != "=") return unknown;
    return allocation(words, op, first, unknown);
  }

  OpsProblem allocation(Words& words, MallocOp& op, std::string_view name,
                        const OpsProblem& at_name) {
    const std::string_view how = words.next();
    if (how == "realloc") {
      if (!find(name, op.stack)) {
        OpsProblem p = at_name;
        p.what = "no block was ever put on this stack";
        p.accepted = {};
        return p;
      }
      return numbers(words, op, MallocOp::kRealloc, 1, 0);
    }
    if (how != "malloc" && how != "calloc" && how != "memalign")
      return words.problem("unknown kind of allocation", kAllocations);
    if (!find(name, op.stack) && !make(name, op.stack)) {
      OpsProblem p = at_name;
      p.what = "the program has more than 32 stacks";
      return p;
    }
    if (how == "malloc") return numbers(words, op, MallocOp::kMalloc, 1, 0);
    return numbers(words, op, how == "calloc" ? MallocOp::kCalloc : MallocOp::kMemalign, 2,
                   0);
  }

  OpsProblem freeing(Words& words, MallocOp& op) {
    op.kind = MallocOp::kFree;
    if (const OpsProblem p = known_stack(words, op); p.what != nullptr) return p;
    if (words.done()) return {};
    const std::string_view which = words.next();
    if (which == "reverse")
      op.which = MallocOp::kReverse;
    else if (which == "last")
      op.which = MallocOp::kLast;
    else if (which == "first")
      op.which = MallocOp::kFirst;
    else if (which == "every")
      return op.which = MallocOp::kEvery, numbers(words, op, MallocOp::kFree, 1, 1);
    else
      return words.problem("which of them?", "every N, first, last, reverse");
    return {};
  }

  OpsProblem mallopt(Words& words, MallocOp& op) {
    const std::string_view name = words.next();
    const ParamName* found = nullptr;
    for (const ParamName& p : kParamNames)
      if (p.name == name) found = &p;
    if (found == nullptr) return words.problem("unknown parameter of mallopt", kParams);
    const OpsProblem p = numbers(words, op, MallocOp::kMallopt, 1, 0);
    op.b = found->value;
    return p;
  }

  OpsProblem opening(Words& words, MallocOp& op, MallocOp::Kind kind) {
    if (depth_ == kMostDepth) return words.problem("loops are nested too deeply");
    if (kind == MallocOp::kThreads && in_threads_)
      return words.problem("threads can't start threads");
    return numbers(words, op, kind, kind == MallocOp::kFork ? 0 : 1, 1);
  }
  [[nodiscard]] static std::string_view name_of(MallocOp::Kind opener) {
    return opener == MallocOp::kRepeat    ? "repeat"
           : opener == MallocOp::kThreads ? "threads"
                                          : "fork";
  }
  [[nodiscard]] MallocOp& innermost() const { return program_.ops[open_[depth_ - 1]]; }

  static OpsProblem numbers(Words& words, MallocOp& op, MallocOp::Kind kind, unsigned count,
                            std::int64_t least) {
    op.kind = kind;
    std::int64_t* const to[] = {&op.a, &op.b};
    for (unsigned i = 0; i < count; ++i) {
      const std::optional<std::int64_t> n = number(words.next());
      if (!n) return words.problem("a number must stand here", "1000, 16K, 2M, 1G");
      if (*n < least) return words.problem("this number is too small");
      *to[i] = *n;
    }
    return {};
  }

  OpsProblem known_stack(Words& words, MallocOp& op) {
    if (find(words.next(), op.stack)) return {};
    return words.problem("no block was ever put on this stack");
  }
  bool find(std::string_view name, std::uint8_t& stack) const {
    for (std::size_t i = 0; i < program_.stack_count; ++i)
      if (program_.stacks[i] == name) {
        stack = static_cast<std::uint8_t>(i);
        return true;
      }
    return false;
  }
  bool make(std::string_view name, std::uint8_t& stack) {
    if (program_.stack_count == OpsProgram::kMostStacks) return false;
    stack = static_cast<std::uint8_t>(program_.stack_count);
    program_.stacks[program_.stack_count++] = name;
    return true;
  }

  void add(const MallocOp& op, unsigned line) {
    const std::size_t index = program_.size++;
    program_.ops[index] = op;
    const auto here = static_cast<std::uint16_t>(index);
    switch (op.kind) {
      case MallocOp::kRepeat:
      case MallocOp::kThreads:
      case MallocOp::kFork:
        open_[depth_] = index;
        open_line_[depth_++] = line;
        in_threads_ |= op.kind == MallocOp::kThreads;
        program_.has_fork |= op.kind == MallocOp::kFork;
        break;
      case MallocOp::kParent:
        innermost().parent = here;
        break;
      case MallocOp::kEnd: {
        MallocOp& opener = innermost();
        opener.end = here;
        if (opener.parent == 0) opener.parent = here;
        if (opener.kind == MallocOp::kThreads) in_threads_ = false;
        --depth_;
        break;
      }
      default:
        break;
    }
  }

  OpsProgram& program_;
  std::array<std::size_t, kMostDepth> open_{};
  std::array<unsigned, kMostDepth> open_line_{};
  std::size_t depth_ = 0;
  bool in_threads_ = false;
};

}  // namespace

OpsProblem read_ops(std::string_view text, OpsProgram& program) {
  Reader reader(program);
  for (unsigned number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const OpsProblem problem = reader.line(alloc::cut(text, 0, end), number);
    if (problem.what != nullptr) return problem;
    text = end == std::string_view::npos ? std::string_view{} : alloc::cut(text, end + 1);
  }
  return reader.end();
}

}  // namespace faultline::workloads
