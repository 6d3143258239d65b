// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/window.h"

#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace faultline::alloc {
namespace {

// Outside what address sanitizer uses for its shadow, and where nothing else is put.
constexpr std::uint64_t kUsualBase = 0x2000'0000'0000;
constexpr unsigned kSpanBits = 45, kLeastSpanBits = 42;
constexpr std::uint64_t kStaleLimit = std::uint64_t{64} << 20;

std::byte* reserve(std::uint64_t at, std::uint64_t span) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != 0 ? MAP_FIXED_NOREPLACE : 0);
  void* const base = mmap(std::bit_cast<void*>(at), span, PROT_NONE, flags, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

// Bits [from, to) of a word.
std::uint64_t bits(unsigned from, unsigned to) {
  const std::uint64_t below = to == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << to) - 1;
  return below & (~std::uint64_t{0} << from);
}

}  // namespace

Window::Window(std::uint64_t page_size)
    : page_shift_(static_cast<unsigned>(std::countr_zero(page_size))) {
  unsigned span = kSpanBits;
  base_ = reserve(kUsualBase, std::uint64_t{1} << span);
  while (base_ == nullptr && span >= kLeastSpanBits) {
    base_ = reserve(0, std::uint64_t{1} << span);
    if (base_ == nullptr) --span;
  }
  if (base_ == nullptr) give_up("cannot reserve address space for a modelled process");
  mask_ = (std::uint64_t{1} << span) - 1;
  // One sparse page must not cost the host a huge one.
  madvise(base_, mask_ + 1, MADV_NOHUGEPAGE);
}

Window::~Window() { munmap(base_, mask_ + 1); }

void Window::back(Addr va) {
  const auto [at, fresh] = groups_.try_emplace(group_of(va));
  Group& group = at->second;
  std::byte* const start = base_ + at->first * group_bytes();
  if (fresh && mprotect(start, group_bytes(), PROT_READ | PROT_WRITE) != 0)
    give_up("cannot open memory of a modelled process");
  const std::uint64_t bit = std::uint64_t{1} << page_in_group(va);
  if ((group.backed & bit) != 0) return;
  group.backed |= bit;
  ++backed_pages_;
  if ((group.stale & bit) == 0) return;
  group.stale &= ~bit;
  --stale_pages_;
  const std::uint64_t page = std::uint64_t{1} << page_shift_;
  std::memset(start + page_in_group(va) * page, 0, page);
}

bool Window::backed(Addr va) const {
  const auto at = groups_.find(group_of(va));
  return at != groups_.end() && (at->second.backed >> page_in_group(va) & 1) != 0;
}

void Window::discard(Addr start, Addr end) {
  if (backed_pages_ == 0 || start >= end) return;
  const std::uint64_t first = group_of(start);
  const std::uint64_t last = group_of(end - 1);
  for (auto at = groups_.lower_bound(first); at != groups_.end() && at->first <= last; ++at) {
    const unsigned from = at->first == first ? page_in_group(start) : 0;
    const unsigned to = at->first == last ? page_in_group(end - 1) + 1 : 64;
    const std::uint64_t lost = at->second.backed & bits(from, to);
    at->second.backed &= ~lost;
    at->second.stale |= lost;
    backed_pages_ -= static_cast<unsigned>(std::popcount(lost));
    stale_pages_ += static_cast<unsigned>(std::popcount(lost));
  }
  if (stale_pages_ << page_shift_ > kStaleLimit) release_stale();
}

void Window::release_stale() {
  const std::uint64_t page = std::uint64_t{1} << page_shift_;
  for (auto at = groups_.begin(); at != groups_.end();) {
    std::byte* const start = base_ + at->first * group_bytes();
    if (at->second.backed == 0) {
      madvise(start, group_bytes(), MADV_DONTNEED);
      mprotect(start, group_bytes(), PROT_NONE);
      at = groups_.erase(at);
      continue;
    }
    for (unsigned i = 0; i < 64; ++i)
      if ((at->second.stale >> i & 1) != 0) madvise(start + i * page, page, MADV_DONTNEED);
    at->second.stale = 0;
    ++at;
  }
  stale_pages_ = 0;
}

void Window::move(Addr from, Addr to, std::uint64_t bytes) {
  const std::uint64_t page = std::uint64_t{1} << page_shift_;
  discard(to, to + bytes);
  for (std::uint64_t at = 0; at < bytes; at += page) {
    if (!backed(from + at)) continue;
    back(to + at);
    std::memcpy(host(to + at), host(from + at), page);
  }
  discard(from, from + bytes);
}

}  // namespace faultline::alloc
