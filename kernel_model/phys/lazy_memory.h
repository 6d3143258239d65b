// SPDX-License-Identifier: Apache-2.0
//
// Zeroed memory that the host commits only where it is touched: for tables with an entry
// for each frame of a machine.
#pragma once

#include <cstddef>

namespace faultline::kernel {

class LazyMemory {
 public:
  LazyMemory() = default;
  ~LazyMemory();
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;

  // Once.
  void reserve(std::size_t bytes);
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace faultline::kernel
