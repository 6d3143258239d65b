// SPDX-License-Identifier: Apache-2.0
//
// Swap slots, swap-out and swap-in: see swap.h.
#include "kernel_model/mm/swap.h"

#include <algorithm>

#include "kernel_model/mm/anon_index.h"
#include "kernel_model/mm/fault_context.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/page_contents.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kDoSwapPage{"do_swap_page", true};
constexpr Centre kSwapinReadahead{"swapin_readahead", true};
constexpr Centre kSwapWritepage{"swap_writepage", true};

}  // namespace

Swap::Swap(Kernel& kernel)
    : kernel_(kernel),
      total_(kernel.config().swap_size >> kernel.profile().geometry.page_shift),
      refs_(total_) {
  if (kernel.config().swap_queue_depth > 0 && total_ > 0) make_queue();
}

std::optional<std::uint32_t> Swap::get_slot() {
  if (used_ == total_) return std::nullopt;
  while (refs_[cursor_] != 0) cursor_ = (cursor_ + 1) % static_cast<std::uint32_t>(total_);
  const std::uint32_t slot = cursor_;
  cursor_ = (cursor_ + 1) % static_cast<std::uint32_t>(total_);
  refs_[slot] = 1;
  ++used_;
  return slot;
}

void Swap::put(std::uint32_t slot, int cpu) {
  FAULTLINE_CHECK_GT(refs_[slot], 0);
  if (--refs_[slot] > 0) {
    // free_swap_and_cache(): only the swap cache has it still, and no device works on it.
    if (refs_[slot] == 1 && queues() && moving_[slot].page != 0 &&
        moving_[slot].state != Move::kWriting && moving_[slot].state != Move::kReading)
      put_page(kernel_, take_moving(slot, cpu), cpu);
    return;
  }
  --used_;
  if (cached(slot)) put_page(kernel_, take_cached(slot, cpu), cpu);
}

void Swap::write(Task& task, std::uint32_t) {
  ++kernel_.vmstat().pswpout;
  device_free_ = std::max(device_free_, task.now()) + kernel_.config().swap_write;
}

void Swap::wait_for_writes(Task& task) {
  if (device_free_ <= task.now()) return;
  const Scope scope(task, kSwapWritepage);
  task.sync();
  task.sleep(device_free_ - task.now());
}

std::optional<Pfn> Swap::cached(std::uint32_t slot) const {
  if (queues()) {
    const Moving& page = moving_[slot];
    if (page.page == 0 || page.state == Move::kReading) return std::nullopt;
    return Pfn{page.page - 1};
  }
  const auto it = cache_.find(slot);
  return it == cache_.end() ? std::nullopt : std::optional(it->second);
}

Pfn Swap::take_cached(std::uint32_t slot, int cpu) {
  if (queues()) return take_moving(slot, cpu);
  const auto it = cache_.find(slot);
  FAULTLINE_CHECK(it != cache_.end());
  const Pfn page = it->second;
  cache_.erase(it);
  return page;
}

bool Swap::read_one(Task& task, std::uint32_t slot) {
  task.charge(kernel_.profile().costs.page_alloc);
  task.sync();
  AllocRequest request;
  request.preferred_node = task.node();
  const auto page = kernel_.phys().alloc_pages(request, task.cpu());
  if (!page) return false;
  if (!wanted(slot)) {  // meanwhile
    kernel_.phys().free_pages(*page, 0, task.cpu());
    return true;
  }
  cache_[slot] = *page;
  ++kernel_.vmstat().pswpin;
  return true;
}

// swap_cluster_readahead(): the aligned cluster of slots.  The asked-for one comes first.
bool Swap::read(Task& task, std::uint32_t slot) {
  const Scope scope(task, kSwapinReadahead);
  task.sync();
  if (queues()) return read_queued(task, slot);
  task.sleep(kernel_.config().swap_read);
  if (!wanted(slot)) return true;
  if (!read_one(task, slot)) return false;
  const std::uint32_t cluster = std::uint32_t{1} << kernel_.config().page_cluster;
  const std::uint32_t first = slot & ~(cluster - 1);
  const auto end =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(first + cluster, total_));
  for (std::uint32_t s = first; s < end; ++s) {
    if (s == slot || !wanted(s)) continue;
    if (!read_one(task, s)) break;
    ++kernel_.vmstat().swap_ra;
  }
  return true;
}

std::uint64_t Swap::drop_unused(std::uint64_t most, int cpu) {
  std::uint64_t dropped = 0;
  while (dropped < most && !cache_.empty()) {
    put_page(kernel_, take_cached(cache_.begin()->first, cpu), cpu);
    ++dropped;
  }
  return dropped;
}

FaultResult do_swap_page(Fault& fault, Table& table, Pte entry) {
  Scope scope(fault.task, kDoSwapPage);
  Swap& swap = fault.kernel.mm_shared().swap;
  const std::uint32_t slot = entry.pfn().v;
  fault.task.sync();
  if (swap.queues()) swap.end_reads(fault.task.now());
  if (!swap.cached(slot)) {
    fault.io = {.file = nullptr, .index = slot};
    return FaultResult::kIo;
  }
  Ptl lock(fault.task, fault.pages, table.page);
  PageTableTree& tree = fault.pages.tree();
  if (tree.find_pte_table(fault.at) != &table ||
      tree.get(table, fault.at).raw() != entry.raw() || !swap.cached(slot))
    return FaultResult::kDone;
  const bool on_lru = swap.queues();
  const Pfn page = swap.take_cached(slot, fault.task.cpu());
  swap.put(slot, fault.task.cpu());
  // Still mapped by others: reclaim has not come to them yet.
  const bool shared = on_lru && fault.kernel.phys().page(page).mapcount > 0;
  const bool writable = (fault.vma.vm_flags & VM_WRITE) != 0 && !shared;
  std::uint64_t bits = fault.page_bits() | Pte::kDirty;
  if (writable) bits |= Pte::kWrite;
  tree.set(table, fault.at, Pte::leaf(page, bits));
  if (on_lru)
    page_add_anon_rmap_of_swap_cache(fault.kernel, page);
  else
    page_add_new_anon_rmap(fault.kernel, page);
  note_anon_index(fault.kernel, page, fault.vma, fault.at);
  if (fault.locked()) mark_mlocked(fault.kernel, page, true);
  fault.task.charge(fault.pages.costs().pte_set);
  fault.pages.rss_stat().add_fast(fault.task, RssKind::kAnon, 1);
  --fault.mm.swap_ents;
  if (PageContents* contents = fault.kernel.contents()) contents->restore(page, slot);
  return FaultResult::kDone;
}

}  // namespace faultline::kernel
