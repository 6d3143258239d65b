// SPDX-License-Identifier: Apache-2.0
//
// A zeroed array of host memory that is reserved at once and costs the host only the pages
// that are really used.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace faultline::alloc {

template <typename T>
class Reserved {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  // Room for `count` elements, or for the largest half, quarter … of them that the host's
  // limits allow, but no fewer than `least`: then it gives up.
  explicit Reserved(std::size_t count, std::size_t least) : count_(count) {
    for (; count_ >= least; count_ /= 2) {
      void* const at = mmap(nullptr, count_ * sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (at == MAP_FAILED) continue;
      data_ = static_cast<T*>(at);
      return;
    }
    std::perror("cannot reserve address space for a modelled process");
    std::abort();
  }
  explicit Reserved(std::size_t count) : Reserved(count, count) {}
  ~Reserved() { munmap(data_, count_ * sizeof(T)); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  [[nodiscard]] T& operator[](std::size_t i) { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data_[i]; }
  [[nodiscard]] std::size_t size() const { return count_; }
  // Asks for the memory of `count` elements from `first` on in one go, which costs the host
  // less than a fault for each page of it; a host that can't (before Linux 5.14) doesn't.
  void populate(std::size_t first, std::size_t count) {
    constexpr int kMadvPopulateWrite = 23;
    madvise(data_ + first, std::min(count, count_ - first) * sizeof(T), kMadvPopulateWrite);
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

}  // namespace faultline::alloc
