// SPDX-License-Identifier: Apache-2.0
//
// Reclaim: what happens when memory runs short.
//
// An allocation that finds less than the low watermark free wakes kswapd, a task of its
// node, which frees pages until the high watermark is reached.  One that finds less than
// the min watermark must reclaim itself (direct reclaim), and if nothing can be had, the
// largest process is killed.  Pages come from the ends of the LRU lists; those used since
// they were last looked at go round once more.  Clean lazily freed pages go at once,
// anonymous pages need swap, cached pages of files are dropped.
//
// Stands for: mm/vmscan.c, __alloc_pages_slowpath() (mm/page_alloc.c), mm/oom_kill.c,
// mem_cgroup_charge() (mm/memcontrol.c), v4.15-6.18.  Model: one zone a node; pages of
// regular files are never dirty for long (the flusher has written them); throttling by the
// swap device alone; the killed process's memory is reaped at once; one memory cgroup,
// which holds every process.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel_model/mm/compaction.h"
#include "kernel_model/mm/lru.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;
class Process;

// struct scan_control.
struct ScanControl {
  enum class For : std::uint8_t { kKswapd, kDirect, kMemcg, kAdvice } why = For::kDirect;
  std::uint64_t nr_to_reclaim = 32;
  unsigned priority = 12;
  std::uint64_t nr_scanned = 0, nr_reclaimed = 0;
  std::uint64_t nr_writeback = 0;  // of the last batch: being written
  [[nodiscard]] bool kswapd() const { return why == For::kKswapd; }
};

class Vmscan final : public SlowPath {
 public:
  explicit Vmscan(Kernel& kernel);
  ~Vmscan();

  // __alloc_pages_slowpath(): below the low watermark.
  MaybePfn alloc_slowpath(const AllocRequest& request, int cpu) override;
  // try_charge(): the program's cgroup may have `pages` more; reclaims from it if need be.
  bool charge(const AllocRequest& request) override;
  // Pages that count against memory.max.
  [[nodiscard]] std::uint64_t memcg_usage() const;

  // reclaim_pages() of MADV_PAGEOUT: pages that the caller has just found; answers how many
  // base pages were freed.
  std::uint64_t reclaim_pages(Task& task, const std::vector<Pfn>& pages);

 private:
  static constexpr std::size_t kSwapClusterMax = 32;
  // Isolated pages.  No heap: a daemon's stack is dropped at the end of a run.
  struct Batch {
    std::array<Pfn, kSwapClusterMax> pages;
    std::size_t count = 0;
  };
  // A thread of its own, made when it is first woken.
  struct Daemon {
    Task* task = nullptr;
    bool asleep = false;
    void wake(Engine& engine, const std::string& name, std::function<void(Task&)> body);
    void sleep(Task& self);
  };
  struct NodeState {
    Daemon kswapd, kcompactd;
    unsigned order = 0, compact_order = 0;
    unsigned failures = 0;  // kswapd_failures
  };

  void wakeup_kswapd(int node, unsigned order);
  void kswapd(Task& task, int node);
  void wakeup_kcompactd(int node, unsigned order);
  void kcompactd(Task& task, int node);
  MaybePfn compact_direct(Task& task, const AllocRequest& request, int cpu,
                          CompactMode mode, CompactResult& result);
  void balance_pgdat(Task& task, int node);
  [[nodiscard]] bool balanced(int node, unsigned order) const;
  std::uint64_t try_to_free_pages(Task& task, int node, ScanControl::For why,
                                  std::uint64_t pages);
  void shrink_node(Task& task, int node, ScanControl& sc);
  void shrink_slab(Task& task, ScanControl& sc);
  void shrink_lruvec(Task& task, int node, ScanControl& sc);
  struct ScanCount {
    std::array<std::uint64_t, 4> of{};  // by LruList
  };
  [[nodiscard]] ScanCount get_scan_count(int node, const ScanControl& sc) const;
  [[nodiscard]] bool inactive_is_low(int node, bool file) const;
  void isolate(Task& task, int node, LruList list, std::uint64_t most, Batch& batch,
               ScanControl& sc);
  void putback(Task& task, const Batch& batch);
  void shrink_active_list(Task& task, int node, LruList list, std::uint64_t most,
                          ScanControl& sc);
  void shrink_inactive_list(Task& task, int node, LruList list, std::uint64_t most,
                            ScanControl& sc);
  std::uint64_t shrink_page_list(Task& task, Batch& batch, ScanControl& sc);

  // kGone: it isn't the caller's any more.
  enum class Fate : std::uint8_t { kKeep, kActivate, kFreed, kGone };
  Fate shrink_page(Task& task, Pfn page, ScanControl& sc);
  Fate shrink_anon(Task& task, Pfn page);
  Fate shrink_huge(Task& task, Pfn head);
  Fate shrink_lazy_folio(Task& task, Pfn head);  // vmscan_lazy.cc
  Fate swap_out(Task& task, Pfn page, std::uint32_t slot);
  Fate shrink_swap_cache(Task& task, Pfn page, ScanControl& sc);
  Fate shrink_file(Task& task, Pfn page);
  struct References {
    unsigned young = 0;
    bool locked = false;
  };
  References page_referenced(Task& task, Pfn page);
  bool all_clean(Pfn page);
  bool unmap(Task& task, Pfn page, std::optional<std::uint32_t> slot);
  bool unmap_at(Task& task, Mm& mm, VirtAddr at, Pfn page,
                std::optional<std::uint32_t> slot);

  bool out_of_memory(Task& task);
  void oom_kill(Task& task, Process& victim);
  [[nodiscard]] bool may_retry(unsigned no_progress) const;
  [[nodiscard]] bool is_reclaimer(const Task& task) const;
  MaybePfn direct(Task& task, const AllocRequest& request, int cpu);

  Kernel& kernel_;
  std::vector<NodeState> nodes_;
  std::vector<const Task*> reclaimers_;  // PF_MEMALLOC: may use the reserve, don't recurse
};

}  // namespace faultline::kernel
