// SPDX-License-Identifier: Apache-2.0
//
// Host memory that holds the bytes of a modelled process: modelled address va lies at
// base + (va mod span), one mask and no table.
//
// All of it is reserved at once, without access and without commitment; a page costs the host memory
// only once its bytes are really used.  A page that the process lost reads as zeros when it is used
// again; the host's memory behind such pages is given back in bulk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "allocator/platform.h"

namespace faultline::alloc {

class Window {
 public:
  // `page_size` is the modelled one.  Where the window lies never matters to what it holds: the
  // usual base is tried first, then any place and smaller spans.
  explicit Window(std::uint64_t page_size);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  [[nodiscard]] std::byte* host(Addr va) const { return base_ + (va & mask_); }

  // The page of `va` is about to be read or written through host().
  void back(Addr va);
  [[nodiscard]] bool backed(Addr va) const;
  // [start, end) is lost; multiples of the page size.
  void discard(Addr start, Addr end);
  // The bytes of `bytes` from `from` on are now at `to`; the ranges don't overlap.
  void move(Addr from, Addr to, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t backed_pages() const { return backed_pages_; }

 private:
  // 64 pages: the unit in which the host's protection is opened.
  struct Group {
    std::uint64_t backed = 0;  // bit a page: holds bytes
    std::uint64_t stale = 0;   // holds bytes that were lost; zeroed before the next use
  };
  [[nodiscard]] std::uint64_t group_of(Addr va) const { return (va & mask_) >> (page_shift_ + 6); }
  [[nodiscard]] unsigned page_in_group(Addr va) const { return static_cast<unsigned>(va >> page_shift_) & 63; }
  [[nodiscard]] std::uint64_t group_bytes() const { return std::uint64_t{64} << page_shift_; }
  void release_stale();

  std::byte* base_ = nullptr;
  std::uint64_t mask_ = 0;
  unsigned page_shift_;
  std::map<std::uint64_t, Group> groups_;
  std::uint64_t backed_pages_ = 0, stale_pages_ = 0;
};

}  // namespace faultline::alloc
