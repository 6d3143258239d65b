// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/window.h"

#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace faultline::alloc {
namespace {

// Outside what address sanitizer uses for its shadow, and where nothing else is put.
constexpr std::uint64_t kUsualBase = 0x2000'0000'0000;
constexpr unsigned kSpanBits = 45, kLeastSpanBits = 42;
constexpr std::uint64_t kStaleLimit = (std::uint64_t{128} << 20) / Window::kPiece;

std::byte* reserve(std::uint64_t at, std::uint64_t span) {
  const int flags =
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != 0 ? MAP_FIXED_NOREPLACE : 0);
  void* const base =
      mmap(std::bit_cast<void*>(at), span, PROT_READ | PROT_WRITE, flags, -1, 0);
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

Window::Window() {
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

Window::~Window() {
  munmap(base_, mask_ + 1);
}

void Window::back(Addr va) {
  const std::uint64_t group = group_of(va);
  const std::uint64_t bit = std::uint64_t{1} << piece_in_group(va);
  std::uint64_t& backed = backed_[group];
  if ((backed & bit) != 0) return;
  backed |= bit;
  ++backed_pieces_;
  clear_stale(group, bit);
}

// If the piece holds old bytes, they make room for zeros.
void Window::clear_stale(std::uint64_t group, std::uint64_t bit) {
  const auto at = stale_.find(group);
  if (at == stale_.end() || (at->second & bit) == 0) return;
  at->second &= ~bit;
  if (at->second == 0) stale_.erase(at);
  --stale_pieces_;
  std::memset(group_start(group) + static_cast<unsigned>(std::countr_zero(bit)) * kPiece, 0,
              kPiece);
}

bool Window::backed(Addr va) const {
  const auto at = backed_.find(group_of(va));
  return at != backed_.end() && (at->second >> piece_in_group(va) & 1) != 0;
}

void Window::discard(Addr start, Addr end) {
  if (backed_pieces_ == 0 || start >= end) return;
  const std::uint64_t first = group_of(start);
  const std::uint64_t last = group_of(end - 1);
  for (auto at = backed_.lower_bound(first); at != backed_.end() && at->first <= last;) {
    const unsigned from = at->first == first ? piece_in_group(start) : 0;
    const unsigned to = at->first == last ? piece_in_group(end - 1) + 1 : 64;
    const std::uint64_t lost = at->second & bits(from, to);
    if (lost != 0) {
      stale_[at->first] |= lost;
      backed_pieces_ -= static_cast<unsigned>(std::popcount(lost));
      stale_pieces_ += static_cast<unsigned>(std::popcount(lost));
    }
    at->second &= ~lost;
    at = at->second == 0 ? backed_.erase(at) : std::next(at);
  }
  if (stale_pieces_ > kStaleLimit) release_stale();
}

// Neighbours go back in one call, whatever lies between them, as long as that isn't backed.
void Window::release_stale() {
  for (auto at = stale_.begin(); at != stale_.end();) {
    const auto live = backed_.lower_bound(at->first);
    const std::uint64_t next_live = live == backed_.end() ? UINT64_MAX : live->first;
    std::byte* const start = group_start(at->first);
    if (next_live == at->first) {
      for (unsigned i = 0; i < 64; ++i)
        if ((at->second >> i & 1) != 0) madvise(start + i * kPiece, kPiece, MADV_DONTNEED);
      ++at;
      continue;
    }
    std::uint64_t last = at->first;
    for (; at != stale_.end() && at->first < next_live; ++at) last = at->first;
    madvise(start, static_cast<std::size_t>(group_start(last + 1) - start), MADV_DONTNEED);
  }
  stale_.clear();
  stale_pieces_ = 0;
}

void Window::move(Addr from, Addr to, std::uint64_t bytes) {
  discard(to, to + bytes);
  for (std::uint64_t at = 0; at < bytes; at += kPiece) {
    if (!backed(from + at)) continue;
    back(to + at);
    std::memcpy(host(to + at), host(from + at), kPiece);
  }
  discard(from, from + bytes);
}

}  // namespace faultline::alloc
