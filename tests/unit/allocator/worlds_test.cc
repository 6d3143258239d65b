// SPDX-License-Identifier: Apache-2.0
//
// One random program in every world: the toy system, the modelled kernel, the real kernel,
// and the machine's own malloc.  Blocks lie at the same places, hold the same bytes, and
// the same system calls are made, in the same order.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "allocator/platform/native.h"
#include "allocator/ptmalloc/check.h"
#include "tests/unit/allocator/model_bench.h"
#include "tests/unit/allocator/ops.h"
#include "tests/unit/allocator/toy_os.h"

namespace faultline::alloc {
namespace {

using ops::Op;

// What happened, in order: system calls, and the results of the program's own calls.
struct Event {
  bool is_result = false;
  SysCall call;  // is_result: `result` is the block
};

// Plays without allocating: the room is there before.
template <typename P>
class Play {
 public:
  Play(P& platform, const ReleaseProfile& release, std::uint64_t seed, SysLog& log,
       std::vector<Event>& events)
      : inner_(platform, log),
        heap_(inner_, release),
        source_(seed),
        log_(log),
        events_(events) {}

  void run(unsigned steps) {
    for (unsigned i = 0; i < steps; ++i) step(source_.next());
  }
  [[nodiscard]] std::uint64_t spoilt() const { return spoilt_; }
  std::string check() { return HeapCheck(inner_, heap_).run(); }

 private:
  struct Block {
    Addr mem = 0;
    std::uint64_t size = 0, stamp = 0;
  };
  void step(const Op& op) {
    Block& block = blocks_[op.slot];
    if (block.mem != 0 && op.kind != Op::kTrim) verify(block.mem, block, block.size);
    const Block old = block;
    switch (op.kind) {
      case Op::kMalloc:
        block.mem = heap_.malloc(inner_, op.size);
        break;
      case Op::kCalloc:
        block.mem = heap_.calloc(inner_, 1, op.size);
        break;
      case Op::kRealloc:
        block.mem = heap_.realloc(inner_, old.mem, op.size);
        break;
      case Op::kMemalign:
        block.mem = heap_.memalign(inner_, op.alignment, op.size);
        break;
      case Op::kFree:
        heap_.free(inner_, old.mem);
        block.mem = 0;
        break;
      case Op::kTrim:
        heap_.malloc_trim(inner_, 0);
        break;
    }
    if (op.kind == Op::kRealloc) verify(block.mem, old, std::min(old.size, op.size));
    note(block.mem);
    if (block.mem == 0 || op.kind == Op::kTrim) return;
    block.size = op.size;
    block.stamp = ++stamps_;
    if (op.size < 8) return;
    inner_.store(block.mem, block.stamp);
    inner_.store(block.mem + last_word(op.size), block.stamp);
  }
  static std::uint64_t last_word(std::uint64_t size) {
    return (size - 8) & ~std::uint64_t{7};
  }
  void verify(Addr mem, const Block& b, std::uint64_t upto) {
    if (upto >= 8 && inner_.template load<std::uint64_t>(mem) != b.stamp) ++spoilt_;
    if (upto == b.size && upto >= 8 &&
        inner_.template load<std::uint64_t>(mem + last_word(b.size)) != b.stamp)
      ++spoilt_;
  }
  void note(Addr mem) {
    for (; seen_ < log_.size(); ++seen_) events_.push_back({false, log_[seen_]});
    Event e;
    e.is_result = true;
    e.call.result = mem;
    events_.push_back(e);
  }

  Recording<P> inner_;
  Ptmalloc<Recording<P>> heap_;
  ops::Source source_;
  SysLog& log_;
  std::vector<Event>& events_;
  std::array<Block, ops::kSlots> blocks_{};
  std::size_t seen_ = 0;
  std::uint64_t stamps_ = 0, spoilt_ = 0;
};

// Events with addresses made relative: to the first break, or to the mapping that holds
// them.
class Relative {
 public:
  std::string text(const Event& e) {
    const SysCall& c = e.call;
    if (e.is_result) return c.result == 0 ? "0" : place(c.result);
    const std::string failed = c.error != 0 ? " = " + std::to_string(c.error) : "";
    const std::string size = std::to_string(c.size);
    switch (c.name) {
      case SysName::kSbrk:
        if (start_ == 0) start_ = c.result;
        end_ = c.result + c.size;
        return "sbrk " + std::to_string(static_cast<std::int64_t>(c.size)) + failed;
      case SysName::kMmap:
        if (c.error == 0) maps_[c.result] = {maps_made_++, c.size};
        return "mmap " + size + " prot " + std::to_string(c.extra) + " flags " +
               std::to_string(c.flags) + failed;
      case SysName::kMunmap:
        return "munmap " + place(c.addr) + " " + size + failed;
      case SysName::kMprotect:
        return "mprotect " + place(c.addr) + " " + size + failed;
      case SysName::kMadvise:
        return "madvise " + place(c.addr) + " " + size + " " + std::to_string(c.extra) +
               failed;
      case SysName::kVrange:
        return "vrange " + place(c.addr) + " " + size + " mode " + std::to_string(c.extra) +
               failed;
      case SysName::kMremap: {
        std::string text = "mremap " + place(c.addr) + " " + size + " to " +
                           std::to_string(c.extra) + failed;
        const Map moved = maps_[c.addr];
        maps_.erase(c.addr);
        maps_[c.result] = {moved.number, c.extra};
        return text;
      }
      case SysName::kGetrandom:
        return "getrandom";
    }
    return "";
  }

 private:
  struct Map {
    unsigned number;
    std::uint64_t size;
  };
  std::string place(Addr a) const {
    if (a >= start_ && a < end_) return "heap+" + std::to_string(a - start_);
    auto m = maps_.upper_bound(a);
    if (m == maps_.begin()) return "?";
    --m;
    return "map" + std::to_string(m->second.number) + "+" + std::to_string(a - m->first);
  }
  Addr start_ = 0, end_ = 0;
  std::map<Addr, Map> maps_;
  unsigned maps_made_ = 0;
};

std::vector<std::string> relative(const std::vector<Event>& events) {
  Relative r;
  std::vector<std::string> all;
  for (const Event& e : events) all.push_back(r.text(e));
  return all;
}

constexpr std::size_t kRoom = 1 << 17;

std::vector<Event> in_toy(const ReleaseProfile& release, std::uint64_t seed,
                          unsigned steps) {
  toy::ToyProcess os;
  toy::ToyThread p(os);
  SysLog log(kRoom);
  std::vector<Event> events;
  Play play(p, release, seed, log, events);
  play.run(steps);
  EXPECT_EQ(play.spoilt(), 0u);
  EXPECT_EQ(play.check(), "");
  return events;
}

std::vector<Event> in_model(const char* profile, const ReleaseProfile& release,
                            std::uint64_t seed, unsigned steps) {
  modelled::Machine machine({.profile = profile});
  std::vector<Event> events;
  machine.run([&](Model& p) {
    SysLog log(kRoom);
    Play play(p, release, seed, log, events);
    play.run(steps);
    EXPECT_EQ(play.spoilt(), 0u);
    EXPECT_EQ(play.check(), "");
  });
  return events;
}

// In a child, whose break is left alone by everybody else.
std::vector<Event> natively(const ReleaseProfile& release, std::uint64_t seed,
                            unsigned steps) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto process = std::make_unique<NativeProcess>();
    Native p(*process);
    SysLog log(kRoom);
    std::vector<Event> events;
    events.reserve(2 * kRoom);
    const auto play = std::make_unique<Play<Native>>(p, release, seed, log, events);
    play->run(steps);
    const auto* bytes = reinterpret_cast<const char*>(events.data());
    for (std::size_t left = events.size() * sizeof(Event); left != 0;) {
      const ssize_t wrote = write(ends[1], bytes, left);
      if (wrote <= 0) _exit(1);
      bytes += wrote;
      left -= static_cast<std::size_t>(wrote);
    }
    _exit(play->spoilt() == 0 ? 0 : 3);
  }
  close(ends[1]);
  std::vector<Event> events;
  Event e;
  for (std::size_t got = 0;;) {
    const ssize_t n = read(ends[0], reinterpret_cast<char*>(&e) + got, sizeof e - got);
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
    if (got < sizeof e) continue;
    events.push_back(e);
    got = 0;
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return events;
}

void expect_same(const std::vector<std::string>& a, const std::vector<std::string>& b,
                 const std::string& what) {
  const std::size_t n = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(a[i], b[i]) << what << ", event " << i;
  ASSERT_EQ(a.size(), b.size()) << what;
}

class Worlds : public testing::TestWithParam<const char*> {};

TEST_P(Worlds, SameProgramSameOffsetsContentsAndCalls) {
  const ReleaseProfile& release = *find_release(GetParam());
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const std::vector<std::string> model =
        relative(in_model("x86-4k", release, seed, 8000));
    ASSERT_GT(model.size(), 8050u);  // system calls as well
    expect_same(model, relative(in_toy(release, seed, 8000)), "toy");
    if (sysconf(_SC_PAGESIZE) == 4096)
      expect_same(model, relative(natively(release, seed, 8000)), "native");
  }
}

TEST_P(Worlds, SameOn64KPages) {
  const ReleaseProfile& release = *find_release(GetParam());
  const std::vector<std::string> model = relative(in_model("arm64-64k", release, 7, 8000));
  PlatformFacts facts;
  facts.page_size = 65536;
  toy::ToyProcess os(facts);
  toy::ToyThread p(os);
  SysLog log(kRoom);
  std::vector<Event> events;
  Play play(p, release, 7, log, events);
  play.run(8000);
  expect_same(model, relative(events), "toy");
}

INSTANTIATE_TEST_SUITE_P(Releases, Worlds,
                         testing::Values("2.23", "2.26", "2.36", "2.39", "2.43-x86",
                                         "2.44"),
                         [](const auto& one) {
                           std::string name = one.param;
                           for (char& c : name)
                             if (c == '.' || c == '-') c = '_';
                           return name;
                         });

// The machine's own malloc puts every block where release 2.36 does.
TEST(RealGlibc, PutsBlocksAtTheSameOffsets) {
  constexpr unsigned kSteps = 20000;
  for (std::uint64_t seed = 21; seed <= 24; ++seed) {
    const std::string command = std::string(GLIBC_REPLAY) + " " + std::to_string(seed) +
                                " " + std::to_string(kSteps);
    FILE* const replay = popen(command.c_str(), "r");
    ASSERT_NE(replay, nullptr);
    std::vector<std::string> lines;
    char line[64];
    while (fgets(line, sizeof line, replay) != nullptr)
      lines.emplace_back(line, strcspn(line, "\n"));
    ASSERT_EQ(pclose(replay), 0);
    if (lines.at(0) != "2.36") GTEST_SKIP() << "this machine has glibc " << lines[0];
    ASSERT_EQ(lines.size(), kSteps + 1);
    unsigned step = 0;
    for (const std::string& ours : relative(in_toy(*find_release("2.36"), seed, kSteps))) {
      const bool result =
          ours == "0" || ours.starts_with("heap+") || ours.starts_with("map");
      if (!result) continue;
      const std::string theirs = lines[++step];
      const std::string as_theirs = ours.starts_with("heap+") ? ours.substr(5)
                                    : ours == "0"             ? "0"
                                                              : "-1";
      ASSERT_EQ(as_theirs, theirs) << "step " << step << " of seed " << seed;
    }
    EXPECT_EQ(step, kSteps);
  }
}

}  // namespace
}  // namespace faultline::alloc
