// SPDX-License-Identifier: Apache-2.0
//
// Copies of whole pieces that are remembered instead of made.
//
// A program that copies half a megabyte and looks at ten words of it shall not cost the
// host half a megabyte.  An echo says: these pieces hold what those bytes hold.  A piece of
// it gets bytes of its own when it is read; it leaves the echo when it is written, or when
// what it repeats is about to change.  To copy the same bytes to the same place again
// changes nothing and costs one look.
//
// Who uses it asks before each access to bytes: before_read, before_write.
#pragma once

#include <cstdint>
#include <map>

#include "allocator/platform.h"
#include "allocator/platform/window.h"

namespace faultline::alloc {

class Echoes {
 public:
  explicit Echoes(Window& window) : window_(window) {}

  [[nodiscard]] bool empty() const { return echoes_.empty(); }
  // Those of another window with the same bytes.
  void assign(const Echoes& other) {
    echoes_ = other.echoes_;
    sources_start_ = other.sources_start_;
    sources_end_ = other.sources_end_;
  }
  // The pieces [start, end) hold what lies at [from, from + end - start), which doesn't
  // overlap them.  False if they did so before; else what was known of where their bytes
  // and those of the source lie is no longer true.
  bool copy(Addr start, Addr end, Addr from);
  // The piece of `at` has bytes of its own afterwards, if it is an echo's.
  void before_read(Addr at);
  // As before_read; and neither it nor any other echo depends on its present bytes.
  void before_write(Addr at);
  // Before [start, end), multiples of the piece, is lost.
  void before_discard(Addr start, Addr end);
  // Before [start, end) moves elsewhere: all that is in it, or repeats it, becomes real.
  void before_move(Addr start, Addr end);

 private:
  struct Echo {
    Addr end = 0, from = 0;
  };
  using Map = std::map<Addr, Echo>;  // by start

  [[nodiscard]] Map::iterator find(Addr at);
  void split(Addr at);
  void forget(Addr start, Addr end);
  void make_real(Addr start, Addr end);
  void release_sources(Addr start, Addr end);
  void give_bytes(Addr piece, Addr from);
  void copy_part(Addr to, Addr from, std::uint64_t n);

  Window& window_;
  Map echoes_;
  Addr sources_start_ = ~Addr{0}, sources_end_ = 0;  // all sources lie between
};

}  // namespace faultline::alloc
