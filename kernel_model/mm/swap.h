// SPDX-License-Identifier: Apache-2.0
//
// The swap device: slots that hold pages, how often each is referred to, and the pages that
// have been read from it ahead of their use.
//
// Stands for: mm/swapfile.c, mm/swap_state.c, swapin_readahead(), do_swap_page()
// (mm/memory.c), v4.15-6.18.  Model: one device; a page leaves the swap cache with its slot
// when the first process has it back, and is written anew each time.
//
// Without swap.queue_depth the device is simple: reclaim waits for what it has written, and
// reads are free of each other and of writes.  With it (swap_queue.cc) it has a queue, as
// kernels use it: reclaim goes on while pages are being written, until too many are, and
// reads take their turn.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "kernel_model/mm/pte.h"
#include "kernel_model/phys/lazy_memory.h"
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
  // --- swap.queue_depth: pages of the swap cache that nobody maps, on their way.
  enum class Move : std::uint8_t { kNone, kMapped, kWriting, kClean, kReading };
  [[nodiscard]] bool queues() const { return slots_ != nullptr; }
  // How far a page is on its way; kNone: it isn't in the swap cache.
  [[nodiscard]] Move move_of(Pfn page) const {
    if (!queues()) return Move::kNone;
    const std::uint32_t slot = slots_[page.v];
    return slot == 0 ? Move::kNone : moving_[slot - 1].state;
  }
  // add_to_swap_cache(): with a reference to the page; the slot's is the cache's from now.
  void add_to_cache(Pfn page, std::uint32_t slot);
  // delete_from_swap_cache(): both references go.  Nothing if it isn't there any more.
  void delete_from_cache(Pfn page, int cpu);
  // swap_writepage()
  void start_write(Task& task, Pfn page);
  // end_swap_bio_write() of all that has reached the device.
  void end_writes(Task& task);
  [[nodiscard]] std::uint64_t writing() const { return writes_.size(); }
  // end_swap_bio_read(), too.
  void end_reads(Time now);
  // get_request(): the task waits while the device's queue is too long.
  void wait_for_room(Task& task);
  // congestion_wait(): until the device has less to do, or the time is over.
  void congestion_wait(Task& task, Duration most);

  // Reads the slot, and those around it that are in use, into the cache; no lock is held.
  // False: no memory.
  [[nodiscard]] bool read(Task& task, std::uint32_t slot);

  // The page in the swap cache, if it has been read or was never away.
  [[nodiscard]] std::optional<Pfn> cached(std::uint32_t slot) const;
  [[nodiscard]] const std::map<std::uint32_t, Pfn>& cache() const { return cache_; }
  // The page gets a mapping: it leaves the cache, whose reference is the caller's.
  Pfn take_cached(std::uint32_t slot, int cpu);
  // Reclaim: cached pages that nobody has asked for; answers how many it freed.
  std::uint64_t drop_unused(std::uint64_t most, int cpu);

 private:
  struct Moving {
    std::uint32_t page = 0;   // frame + 1; 0: nothing
    std::uint32_t write = 0;  // number of its write
    Move state = Move::kNone;
  };
  struct Write {
    Duration done;  // since the start, less put_off_ at its beginning
    std::uint32_t slot;
    std::uint32_t number;
  };
  struct Writer {               // struct io_context
    std::uint64_t written = 0;  // since he last waited or could have
    std::uint64_t batch = 0;    // pages that he may still write without waiting
    Time until;
  };
  struct Read {
    Time done;
    std::uint32_t slot;
  };

  bool read_one(Task& task, std::uint32_t slot);
  // Somebody has the slot, and the swap cache doesn't.
  [[nodiscard]] bool wanted(std::uint32_t slot) const {
    return refs_[slot] != 0 && (queues() ? moving_[slot].page == 0 : !cached(slot));
  }
  void make_queue();
  void enter_cache(Pfn page, std::uint32_t slot, Move state);
  Pfn take_moving(std::uint32_t slot, int cpu);
  Writer& writer(const Task& task);
  [[nodiscard]] std::uint64_t backlog(Time now) const;
  bool read_queued(Task& task, std::uint32_t slot);
  bool begin_read(Task& task, std::uint32_t slot);
  void wait_for_read(Task& task, std::uint32_t slot);

  Kernel& kernel_;
  std::uint64_t total_, used_ = 0;
  std::vector<std::uint16_t> refs_;
  std::uint32_t cursor_ = 0;
  std::map<std::uint32_t, Pfn> cache_;  // read ahead, not mapped yet
  Time device_free_;

  std::vector<Moving> moving_;  // of each slot
  std::deque<Write> writes_;    // on their way, first come first
  std::uint32_t writes_begun_ = 0;
  std::deque<Read> reads_;  // on their way, first come first
  Time reads_end_;
  std::vector<Writer> writers_;  // by task
  Time next_turn_;               // of who waits for room
  Duration put_off_;             // by reads: so much later writes end that wait
  LazyMemory slots_memory_;
  std::uint32_t* slots_ = nullptr;  // of each frame: slot + 1
};

// The entry at the fault's address is a swap entry.
FaultResult do_swap_page(Fault& fault, Table& table, Pte entry);

}  // namespace faultline::kernel
