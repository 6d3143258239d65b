// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/lazy_memory.h"

#include <sys/mman.h>

#include "sim/check.h"

namespace faultline::kernel {

void LazyMemory::reserve(std::size_t bytes) {
  FAULTLINE_CHECK(data_ == nullptr);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FAULTLINE_CHECK(memory != MAP_FAILED);
  data_ = memory;
  bytes_ = bytes;
}

LazyMemory::~LazyMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace faultline::kernel
