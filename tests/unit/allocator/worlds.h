// SPDX-License-Identifier: Apache-2.0
//
// A random program played on an allocator in any world, and what happened as text that is
// the same in all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "allocator/platform/recording.h"
#include "allocator/ptmalloc/check.h"
#include "allocator/ptmalloc/ptmalloc.h"
#include "tests/unit/allocator/ops.h"

namespace faultline::alloc::worlds {

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
  // Events so far are done with.
  void forget() {
    log_.clear();
    events_.clear();
    seen_ = 0;
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

}  // namespace faultline::alloc::worlds
