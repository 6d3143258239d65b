// SPDX-License-Identifier: Apache-2.0
//
// The thread's cache: short stacks of freed chunks by size, used without a lock.
//
// It lies in a chunk of the heap like any other: counters first, then the list heads.  A
// cached chunk keeps its in-use bit; its first user word links to the next one and its
// second holds the key that betrays a double free.
//
// Stands for: struct tcache_perthread_struct, tcache_put and tcache_get (glibc 2.26-2.44).
// Model: the links are stored plain (from 2.32 glibc stores them xor-ed: the same words).
#pragma once

#include "allocator/ptmalloc/chunks.h"
#include "allocator/ptmalloc/release.h"

namespace faultline::alloc {

// Where things lie in it.
struct TcacheShape {
  explicit TcacheShape(const ReleaseProfile& release)
      : entries_offset(release.tcache_entries_offset()),
        wide(release.tcache_count_bytes == 2) {}
  std::uint64_t entries_offset;
  bool wide;  // counters of two bytes
};

template <typename P>
class Tcache {
 public:
  Tcache(P& p, Addr at, TcacheShape shape)
      : m_(p), at_(at), entries_(at + shape.entries_offset), wide_(shape.wide) {}

  [[nodiscard]] unsigned count(unsigned index) const {
    return wide_ ? m_.p.template load<std::uint16_t>(at_ + 2 * index)
                 : m_.p.template load<std::uint8_t>(at_ + index);
  }

  void put(unsigned index, Addr mem, TcacheKey kind, std::uint64_t key) const {
    const Addr head = entries_ + kWord * index;
    if (kind != TcacheKey::kNone)
      m_.set_word(mem + kWord, kind == TcacheKey::kOwner ? at_ : key);
    m_.set_word(mem, m_.word(head));
    m_.set_word(head, mem);
    set_count(index, count(index) + 1);
  }

  // Precondition: count(index) > 0.
  [[nodiscard]] Addr get(unsigned index, TcacheKey kind) const {
    const Addr head = entries_ + kWord * index;
    const Addr mem = m_.word(head);
    m_.set_word(head, m_.word(mem));
    set_count(index, count(index) - 1);
    if (kind != TcacheKey::kNone) m_.set_word(mem + kWord, 0);
    return mem;
  }

  [[nodiscard]] Addr at() const { return at_; }
  [[nodiscard]] std::uint64_t key_of(Addr mem) const { return m_.word(mem + kWord); }

  // The newest chunk of the class; 0 if empty.
  [[nodiscard]] Addr peek(unsigned index) const {
    return m_.word(entries_ + kWord * index);
  }
  [[nodiscard]] Addr next(Addr mem) const { return m_.word(mem); }

 private:
  void set_count(unsigned index, unsigned n) const {
    if (wide_)
      m_.p.template store<std::uint16_t>(at_ + 2 * index, static_cast<std::uint16_t>(n));
    else
      m_.p.template store<std::uint8_t>(at_ + index, static_cast<std::uint8_t>(n));
  }

  Chunks<P> m_;
  Addr at_, entries_;
  bool wide_;
};

}  // namespace faultline::alloc
