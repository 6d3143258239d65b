// SPDX-License-Identifier: Apache-2.0
//
// What bulk accesses cost on a machine whose last-level caches are modelled (Profile::llc):
// memcpy, memset, clear_page and copy_page look up each page of theirs.
//
// Each NUMA node has one cache, shared by its CPUs.  A page that it holds is accessed at
// the core's own rate (cached_copy_rate, clear_rate).  One that it doesn't is filled from
// its node's memory, at no more than memory_rate, and a dirty one that has to go for it is
// written back; both go through the node's bandwidth, which all share who miss at the same
// time.  So many threads scale until their blocks together are larger than the cache, and
// then stand at the memory's bandwidth.
//
// Two hardware threads of a core share its way to the cache (an L2 cache takes 32 bytes a
// cycle from the ring) and its line fill buffers: together they get no more than one alone.
//
// Model: entries are pages, not lines.  A write reads what it doesn't find (read for
// ownership); clear_page, whose string instruction writes whole lines, takes them over
// unread, in the same time but without traffic.  Who evicts a dirty page waits for its
// write-back, which only the node's bandwidth holds up.  A block of
// Llc::non_temporal_threshold and more is written past the cache, as libcs do.  Single
// loads and stores, page tables and other data of the kernel's take no part, nor do hugetlb
// pages: they count as held.  The look-ups of kBatch bytes are made at once, and on cores
// of one thread those of up to kMostHeld as long as all of them are held; those of a clear
// may be as early as its fault runs ahead.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/phys/last_level_cache.h"
#include "kernel_model/types.h"
#include "sim/bandwidth.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Process;

class DataCaches {
 public:
  static constexpr std::uint64_t kBatch = 64 << 10, kMostHeld = 1 << 20;

  // In pages, of the whole machine since its start.
  struct Stats {
    std::uint64_t hits = 0, misses = 0;
    std::uint64_t writebacks = 0;  // dirty pages evicted
    std::uint64_t dram_bytes = 0;  // filled, written back, written past the caches
  };

  explicit DataCaches(Kernel& kernel);

  // The time of a user's memcpy or memset over memory that is mapped; booked where the task
  // stands.
  void copy(Task& task, Process& process, VirtAddr to, VirtAddr from, std::uint64_t n);
  // `whole` bytes are written by the call of which these are a part.
  void set(Task& task, Process& process, VirtAddr to, std::uint64_t n, std::uint64_t whole);
  // How much of `left` bytes from `at` on is looked up at once.  Ends at a page boundary,
  // so that no page is looked up for two batches.
  [[nodiscard]] std::uint64_t batch_from(VirtAddr at, std::uint64_t left) const;
  // The kernel's, over frames.
  void clear_frames(Task& task, Pfn first, std::uint64_t bytes);
  void copy_frames(Task& task, Pfn to, Pfn from, std::uint64_t bytes);

  // The part of clear_frames() that other tasks see, and its price, for pages that are
  // cleared one by one and paid for together.
  struct Bill {
    std::uint64_t bytes_held = 0;   // accessed at the core's rate
    std::uint64_t bytes_taken = 0;  // taken over unread
    // With the nodes' memories: awaited by the core, or behind its back.
    std::array<std::uint64_t, arch::Llc::kMostNodes> fills{}, writebacks{};
    std::uint64_t all_traffic = 0;
    // Of most bills there is no traffic to be cleared.
    void clear() {
      bytes_held = bytes_taken = 0;
      if (all_traffic != 0) *this = {};
    }
  };
  void clear_pages(const Task& task, const Pfn* frames, std::uint64_t count, Bill& bill);
  // The times of the bill, the held part at `rate`.
  void pay(Task& task, const Bill& bill, std::uint64_t rate);

  [[nodiscard]] const Stats& stats() const { return stats_; }
  [[nodiscard]] const LastLevelCache& cache_of(int node) const {
    return caches_[static_cast<std::size_t>(node)];
  }

 private:
  enum class Use : std::uint8_t { kRead, kWrite, kOverwrite };
  class Span;
  void access(int node, Pfn frame, Use use, std::uint64_t bytes, Bill& bill);
  void miss(int node, Pfn frame, Use use, Bill& bill);
  void ask_other_caches(int node, Pfn frame, Use use, Bill& bill);
  void write_past(Pfn frame, std::uint64_t bytes, Bill& bill);
  template <typename Frame, typename Bytes>
  void access_pages(int node, std::uint64_t pages, Use use, Bill& bill, Frame frame,
                    Bytes bytes);
  void access_range(const Task& task, Process& process, VirtAddr at, std::uint64_t n,
                    Use use, Bill& bill);
  void write_past_range(Process& process, VirtAddr at, std::uint64_t n, Bill& bill);
  void write_range(const Task& task, Process& process, VirtAddr at, std::uint64_t n,
                   std::uint64_t whole, Bill& bill);
  template <typename LookUp>
  void in_batches(Task& task, VirtAddr to, std::uint64_t n, std::uint64_t rate,
                  LookUp look_up);
  template <typename LookUp>
  void in_batches(Task& task, std::uint64_t bytes, std::uint64_t rate, LookUp look_up);
  [[nodiscard]] std::uint64_t copy_rate() const;
  [[nodiscard]] bool bypasses(std::uint64_t bytes) const;
  void fill(Pfn frame, std::uint64_t bytes, Bill& bill);
  void write_back(Pfn frame, Bill& bill);
  [[nodiscard]] std::size_t core_of(const Task& task) const;
  void use_port(Task& task, std::uint64_t bytes, std::uint64_t rate);
  void await_fills(Task& task, SharedBandwidth& memory, std::uint64_t bytes);
  void await_memory(Task& task, const Bill& bill);

  Kernel& kernel_;
  std::uint64_t page_size_;
  std::vector<LastLevelCache> caches_;  // by node
  // Each core's way to its cache, in bytes read or written, and how many of its threads
  // wait for fills; none where a core is one CPU.
  std::vector<std::unique_ptr<SharedBandwidth>> ports_;
  std::vector<unsigned> filling_;
  Stats stats_;
};

}  // namespace faultline::kernel
