// SPDX-License-Identifier: Apache-2.0
//
// The swap device: slots that hold pages, how often each is referred to, and the pages that
// have been read from it ahead of their use.
//
// Stands for: mm/swapfile.c, mm/swap_state.c, swapin_readahead(), do_swap_page()
// (mm/memory.c), v4.15-6.18.  Model: one device; writes are done one after the other, reads
// aren't limited; a page leaves the swap cache with its slot when the last process has it
// back, and a page that several share is written anew each time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kernel_model/mm/pte.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
struct Fault;
struct Table;
enum class FaultResult : std::uint8_t;

class Swap {
 public:
  explicit Swap(Kernel& kernel);

  [[nodiscard]] std::uint64_t total_pages() const { return total_; }
  [[nodiscard]] std::uint64_t free_pages() const { return total_ - used_; }
  [[nodiscard]] static Pte entry_of(std::uint32_t slot) {
    return Pte::leaf(Pfn{slot}, Pte::kSwap);
  }

  // get_swap_page(): a free slot with one reference.
  [[nodiscard]] std::optional<std::uint32_t> get_slot();
  void duplicate(std::uint32_t slot) { ++refs_[slot]; }
  // swap_free(): one reference less; with the last one the slot is free and its cached page
  // goes.
  void put(std::uint32_t slot, int cpu);

  // The task waits until what it has just written is on the device.
  void wait_for_writes(Task& task);
  // One more page to write.
  void write(Task& task, std::uint32_t slot);
  // Reads the slot, and those around it that are in use, into the cache; no lock is held.
  // False: no memory.
  [[nodiscard]] bool read(Task& task, std::uint32_t slot);

  [[nodiscard]] std::optional<Pfn> cached(std::uint32_t slot) const;
  [[nodiscard]] const std::map<std::uint32_t, Pfn>& cache() const { return cache_; }
  // The page gets its first mapping: it leaves the cache, whose reference is the caller's.
  Pfn take_cached(std::uint32_t slot);
  // Reclaim: cached pages that nobody has asked for; answers how many it freed.
  std::uint64_t drop_unused(std::uint64_t most, int cpu);

 private:
  bool read_one(Task& task, std::uint32_t slot);

  Kernel& kernel_;
  std::uint64_t total_, used_ = 0;
  std::vector<std::uint16_t> refs_;
  std::uint32_t cursor_ = 0;
  std::map<std::uint32_t, Pfn> cache_;  // read ahead, not mapped yet
  Time device_free_;
};

// The entry at the fault's address is a swap entry.
FaultResult do_swap_page(Fault& fault, Table& table, Pte entry);

}  // namespace faultline::kernel
