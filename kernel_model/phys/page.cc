// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/page.h"

#include <sys/mman.h>

#include "sim/check.h"

namespace faultline::kernel {

FrameTable::FrameTable(std::size_t frames) : frames_(frames) {
  FAULTLINE_CHECK_GT(frames, std::size_t{0});
  void* memory = ::mmap(nullptr, frames * sizeof(Page), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FAULTLINE_CHECK(memory != MAP_FAILED);
  pages_ = static_cast<Page*>(memory);
}

FrameTable::~FrameTable() {
  ::munmap(pages_, frames_ * sizeof(Page));
}

}  // namespace faultline::kernel
