// SPDX-License-Identifier: Apache-2.0
//
// Chunk headers and links as words of the process's memory.
//
// Every access goes through the platform at the word's real address: which pages an
// allocator touches with its own data decides faults and resident memory, so no header is
// kept aside.
#pragma once

#include "allocator/platform.h"
#include "allocator/ptmalloc/layout.h"

namespace faultline::alloc {

template <typename P>
class Chunks {
 public:
  explicit Chunks(P& platform) : p(platform) {}

  [[nodiscard, gnu::always_inline]] std::uint64_t word(Addr at) const {
    return p.template load<std::uint64_t>(at);
  }
  [[gnu::always_inline]] void set_word(Addr at, std::uint64_t v) const {
    p.template store<std::uint64_t>(at, v);
  }

  // The size word with its flag bits, and the size alone.
  [[nodiscard, gnu::always_inline]] std::uint64_t head(Addr c) const {
    return word(c + kWord);
  }
  [[nodiscard, gnu::always_inline]] std::uint64_t size(Addr c) const {
    return head(c) & ~kSizeBits;
  }
  [[gnu::always_inline]] void set_head(Addr c, std::uint64_t v) const {
    set_word(c + kWord, v);
  }
  [[gnu::always_inline]] void set_head_size(Addr c, std::uint64_t size) const {
    set_head(c, (head(c) & kSizeBits) | size);
  }
  [[gnu::always_inline]] void add_flag(Addr c, std::uint64_t flag) const {
    set_head(c, head(c) | flag);
  }

  // The word before the header: a free chunk's size again, at its end; an mmapped one's
  // offset.
  [[nodiscard, gnu::always_inline]] std::uint64_t prev_size(Addr c) const {
    return word(c);
  }
  [[gnu::always_inline]] void set_foot(Addr c, std::uint64_t size) const {
    set_word(c + size, size);
  }

  [[nodiscard, gnu::always_inline]] bool prev_inuse(Addr c) const {
    return (head(c) & kPrevInuse) != 0;
  }
  // Whether a chunk of `size` at `c` is in use is written in the header that follows it.
  [[nodiscard, gnu::always_inline]] bool inuse(Addr c, std::uint64_t size) const {
    return prev_inuse(c + size);
  }
  [[gnu::always_inline]] void set_inuse(Addr c, std::uint64_t size) const {
    add_flag(c + size, kPrevInuse);
  }
  [[gnu::always_inline]] void clear_prev_inuse(Addr c) const {
    set_head(c, head(c) & ~kPrevInuse);
  }

  // Links of a free chunk, and of the skip list over the sizes of a large bin.
  [[nodiscard, gnu::always_inline]] Addr fd(Addr c) const { return word(c + 16); }
  [[nodiscard, gnu::always_inline]] Addr bk(Addr c) const { return word(c + 24); }
  [[nodiscard, gnu::always_inline]] Addr fd_nextsize(Addr c) const { return word(c + 32); }
  [[nodiscard, gnu::always_inline]] Addr bk_nextsize(Addr c) const { return word(c + 40); }
  [[gnu::always_inline]] void set_fd(Addr c, Addr to) const { set_word(c + 16, to); }
  [[gnu::always_inline]] void set_bk(Addr c, Addr to) const { set_word(c + 24, to); }
  [[gnu::always_inline]] void set_fd_nextsize(Addr c, Addr to) const {
    set_word(c + 32, to);
  }
  [[gnu::always_inline]] void set_bk_nextsize(Addr c, Addr to) const {
    set_word(c + 40, to);
  }

  P& p;
};

constexpr Addr to_mem(Addr chunk) {
  return chunk + kHeader;
}
constexpr Addr to_chunk(Addr mem) {
  return mem - kHeader;
}

}  // namespace faultline::alloc
