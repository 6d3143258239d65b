// SPDX-License-Identifier: Apache-2.0
//
// An arena: the bins, the top chunk and the counters of one heap or chain of heaps.
//
// An Arena object is a view of a struct malloc_state in the process's memory; copying it
// copies nothing.  Its bins are circular lists whose head lies where a chunk would have its
// links, so that a bin looks like a chunk.  All of it is guarded by the arena's lock,
// except the heads of the fastbins and the flag that says that one may be non-empty.
//
// Stands for: struct malloc_state and its macros, malloc/malloc.c (glibc 2.23-2.44).
#pragma once

#include "allocator/ptmalloc/chunks.h"
#include "allocator/ptmalloc/layout.h"

namespace faultline::alloc {

template <typename P>
class Arena {
 public:
  Arena(P& p, Addr at, bool is_main, const ArenaLayout& layout)
      : m(p), at_(at), is_main_(is_main), l_(&layout) {}

  [[nodiscard]] Addr at() const { return at_; }
  [[nodiscard]] bool is_main() const { return is_main_; }
  // What the size words of its chunks in use are marked with.
  [[nodiscard]] std::uint64_t mark() const { return is_main_ ? 0 : kNonMainArena; }
  [[nodiscard]] typename P::Lock& lock() const {
    return m.p.lock_at(at_, "malloc_state.mutex");
  }

  [[nodiscard, gnu::always_inline]] Addr top() const { return get(l_->top); }
  void set_top(Addr c) const { put(l_->top, c); }
  [[nodiscard, gnu::always_inline]] Addr last_remainder() const {
    return get(l_->last_remainder);
  }
  void set_last_remainder(Addr c) const { put(l_->last_remainder, c); }

  [[nodiscard, gnu::always_inline]] Addr bin(unsigned i) const {
    return at_ + l_->bins + 2 * kWord * (i - 1) - kHeader;
  }
  [[nodiscard]] Addr unsorted() const { return bin(kUnsorted); }
  [[nodiscard]] Addr fastbin(unsigned i) const { return at_ + l_->fastbins + i * kWord; }

  [[nodiscard]] bool contiguous() const { return flag(l_->flags) == 0; }
  void set_noncontiguous() const { set_flag(l_->flags, 1); }
  [[nodiscard]] bool have_fast() const { return flag(l_->have_fast) != 0; }
  void set_have_fast(bool v) const { set_flag(l_->have_fast, v ? 1 : 0); }

  // One bit a bin: clear means empty, set means that it may not be.
  [[nodiscard, gnu::always_inline]] std::uint32_t map_block(unsigned block) const {
    return m.p.template load<std::uint32_t>(at_ + l_->binmap + 4 * block);
  }
  [[gnu::always_inline]] void set_map_block(unsigned block, std::uint32_t bits) const {
    m.p.template store<std::uint32_t>(at_ + l_->binmap + 4 * block, bits);
  }
  // Two blocks at once: the map is little-endian words of 32 bits.
  [[nodiscard, gnu::always_inline]] std::uint64_t map_word(unsigned pair) const {
    return get(l_->binmap + 8 * pair);
  }
  void mark_bin(unsigned i) const {
    set_map_block(i / 32, map_block(i / 32) | 1u << i % 32);
  }

  [[nodiscard]] Addr next() const { return get(l_->next); }
  void set_next(Addr arena) const { put(l_->next, arena); }
  [[nodiscard]] Addr next_free() const { return get(l_->next_free); }
  void set_next_free(Addr arena) const { put(l_->next_free, arena); }
  [[nodiscard]] std::uint64_t attached() const { return get(l_->attached); }
  void set_attached(std::uint64_t n) const { put(l_->attached, n); }
  [[nodiscard]] std::uint64_t system_mem() const { return get(l_->system_mem); }
  [[nodiscard]] std::uint64_t max_system_mem() const { return get(l_->max_system_mem); }
  void set_max_system_mem(std::uint64_t n) const { put(l_->max_system_mem, n); }
  void add_system_mem(std::uint64_t n) const { put(l_->system_mem, system_mem() + n); }

  // Empty bins, and a top of size 0: the unsorted bin seen as a chunk has last_remainder
  // there.
  void init_state() const {
    for (unsigned i = 1; i < kBins; ++i) {
      m.set_fd(bin(i), bin(i));
      m.set_bk(bin(i), bin(i));
    }
    if (!is_main_) set_noncontiguous();
    set_top(unsorted());
  }

  Chunks<P> m;

 private:
  [[nodiscard, gnu::always_inline]] std::uint64_t get(std::uint64_t offset) const {
    return m.word(at_ + offset);
  }
  [[gnu::always_inline]] void put(std::uint64_t offset, std::uint64_t v) const {
    m.set_word(at_ + offset, v);
  }
  [[nodiscard, gnu::always_inline]] std::uint16_t flag(std::uint64_t offset) const {
    return m.p.template load<std::uint16_t>(at_ + offset);
  }
  [[gnu::always_inline]] void set_flag(std::uint64_t offset, std::uint16_t v) const {
    m.p.template store<std::uint16_t>(at_ + offset, v);
  }

  Addr at_;
  bool is_main_;
  const ArenaLayout* l_;
};

}  // namespace faultline::alloc
