// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/echoes.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace faultline::alloc {
namespace {

constexpr Addr piece_start(Addr at) {
  return at & ~(Window::kPiece - 1);
}

}  // namespace

// The echo that holds `at`, or end().
Echoes::Map::iterator Echoes::find(Addr at) {
  auto e = echoes_.upper_bound(at);
  if (e == echoes_.begin()) return echoes_.end();
  --e;
  return at < e->second.end ? e : echoes_.end();
}

// `at` is no longer inside an echo, but a boundary of it.
void Echoes::split(Addr at) {
  const auto e = find(at);
  if (e == echoes_.end() || e->first == at) return;
  echoes_.emplace(at, Echo{e->second.end, e->second.from + (at - e->first)});
  e->second.end = at;
}

void Echoes::forget(Addr start, Addr end) {
  split(start);
  split(end);
  echoes_.erase(echoes_.lower_bound(start), echoes_.lower_bound(end));
  if (echoes_.empty()) {
    sources_start_ = ~Addr{0};
    sources_end_ = 0;
  }
}

void Echoes::copy_part(Addr to, Addr from, std::uint64_t n) {
  if (window_.backed(from)) std::memcpy(window_.host(to), window_.host(from), n);
}

// The source may lie across two pieces; one without bytes holds zeros, as a fresh piece
// does.
void Echoes::give_bytes(Addr piece, Addr from) {
  if (window_.backed(piece)) return;
  window_.back(piece);
  const std::uint64_t first = Window::kPiece - (from - piece_start(from));
  copy_part(piece, from, first);
  if (first < Window::kPiece)
    copy_part(piece + first, from + first, Window::kPiece - first);
}

void Echoes::make_real(Addr start, Addr end) {
  for (Addr piece = piece_start(start); piece < end; piece += Window::kPiece)
    before_read(piece);
  forget(piece_start(start), piece_start(end + Window::kPiece - 1));
}

// No echo repeats bytes of [start, end) any more.
void Echoes::release_sources(Addr start, Addr end) {
  if (end <= sources_start_ || start >= sources_end_) return;
  struct Part {
    Addr start, end;
  };
  std::vector<Part> parts;
  for (const auto& [to, echo] : echoes_) {
    const Addr from_end = echo.from + (echo.end - to);
    if (echo.from >= end || from_end <= start) continue;
    const Addr first = std::max(start, echo.from) - echo.from + to;
    const Addr last = std::min(end, from_end) - echo.from + to;
    parts.push_back({first, last});
  }
  for (const Part& part : parts) make_real(part.start, part.end);
}

bool Echoes::copy(Addr start, Addr end, Addr from) {
  if (const auto e = echoes_.find(start);
      e != echoes_.end() && e->second.end == end && e->second.from == from)
    return false;
  const Addr from_end = from + (end - start);
  release_sources(start, end);  // what repeated the old bytes
  // What is repeated must be real itself.
  const auto next = echoes_.lower_bound(from);
  if (find(from) != echoes_.end() || (next != echoes_.end() && next->first < from_end))
    make_real(from, from_end);
  forget(start, end);
  window_.discard(start, end);
  echoes_.emplace(start, Echo{end, from});
  sources_start_ = std::min(sources_start_, from);
  sources_end_ = std::max(sources_end_, from_end);
  return true;
}

void Echoes::before_read(Addr at) {
  const auto e = find(at);
  if (e == echoes_.end()) return;
  const Addr piece = piece_start(at);
  give_bytes(piece, e->second.from + (piece - e->first));
}

void Echoes::before_write(Addr at) {
  const Addr piece = piece_start(at);
  release_sources(piece, piece + Window::kPiece);
  if (find(piece) == echoes_.end()) return;
  before_read(piece);
  forget(piece, piece + Window::kPiece);
}

void Echoes::before_discard(Addr start, Addr end) {
  forget(start, end);
  release_sources(start, end);
}

void Echoes::before_move(Addr start, Addr end) {
  make_real(start, end);
  release_sources(start, end);
}

}  // namespace faultline::alloc
