// SPDX-License-Identifier: Apache-2.0
//
// Pages on their way to the LRU of lazily freed pages wait in a small batch of each CPU,
// and count (and can be reclaimed) only when the batch is applied.
//
// Stands for: lru_lazyfree pagevec, mark_page_lazyfree(), lru_add_drain() (mm/swap.c,
// v4.15-6.18). Model: the batch of new pages isn't kept: whoever looks at it drains it
// first.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_model/types.h"

namespace faultline::kernel {

class Kernel;
struct Page;

class LruBatches {
 public:
  explicit LruBatches(Kernel& kernel);

  // A clean anonymous page that may be dropped; a huge page's batch is applied at once.
  void mark_page_lazyfree(Pfn head, int cpu);
  void lru_add_drain(int cpu) {
    if (!batches_[static_cast<std::size_t>(cpu)].empty()) apply(cpu);
  }
  void lru_add_drain_all();

 private:
  void apply(int cpu);
  void deactivate(Page& page, Pfn head);

  Kernel& kernel_;
  std::vector<std::vector<Pfn>> batches_;  // each holds a reference
};

}  // namespace faultline::kernel
