// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/page.h"

#include "sim/check.h"

namespace faultline::kernel {

FrameTable::FrameTable(std::size_t frames) : frames_(frames) {
  FAULTLINE_CHECK_GT(frames, std::size_t{0});
  memory_.reserve(frames * sizeof(Page));
  pages_ = static_cast<Page*>(memory_.data());
}

}  // namespace faultline::kernel
