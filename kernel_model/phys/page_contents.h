// SPDX-License-Identifier: Apache-2.0
//
// What frames hold, as far as a check can ask: one byte a frame, zero after a clear, taken
// along by a copy.  Off unless somebody watches (Kernel::watch_contents): the model's
// results don't need it, the comparison with a live kernel does.
#pragma once

#include <cstdint>
#include <map>

#include "kernel_model/types.h"

namespace faultline::kernel {

class PageContents {
 public:
  void wrote(Pfn pfn, std::uint8_t byte) { bytes_[pfn.v] = byte; }
  [[nodiscard]] std::uint8_t byte(Pfn pfn) const {
    const auto it = bytes_.find(pfn.v);
    return it == bytes_.end() ? std::uint8_t{0} : it->second;
  }
  void cleared(Pfn first, std::uint64_t pages) {
    bytes_.erase(bytes_.lower_bound(first.v),
                 bytes_.lower_bound(first.v + static_cast<std::uint32_t>(pages)));
  }
  void copied(Pfn from, Pfn to, std::uint64_t pages) {
    for (std::uint32_t i = 0; i < pages; ++i) {
      const std::uint8_t b = byte(Pfn{from.v + i});
      cleared(Pfn{to.v + i}, 1);
      if (b != 0) wrote(Pfn{to.v + i}, b);
    }
  }

  void swapped_out(Pfn pfn, std::uint32_t slot) { slots_[slot] = byte(pfn); }
  void restore(Pfn pfn, std::uint32_t slot) {
    cleared(pfn, 1);
    if (slots_[slot] != 0) wrote(pfn, slots_[slot]);
  }

 private:
  std::map<std::uint32_t, std::uint8_t> slots_;  // of swap
  std::map<std::uint32_t, std::uint8_t> bytes_;  // frames that don't hold zero
};

}  // namespace faultline::kernel
