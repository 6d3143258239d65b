// SPDX-License-Identifier: Apache-2.0
//
// The huge zero page and the queues that all address spaces share.
#include "kernel_model/mm/mm_shared.h"

#include <utility>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/compaction.h"
#include "kernel_model/mm/vmscan.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

constexpr Centre kGetHugeZeroPage{"get_huge_zero_page", true};

// Batches of (PAGE_SIZE - sizeof(struct mmu_gather_batch)) / sizeof(void*) pointers, at
// most 10000 / that many of them, and the first one of 8 on the stack (MMU_GATHER_BUNDLE).
std::uint64_t max_gathered(std::uint64_t page_size) {
  const std::uint64_t batch = (page_size - 16) / 8;
  return MmShared::kGatherBundle + 10'000 / batch * batch;
}

}  // namespace

void DeferredSplitQueue::add(Pfn head) {
  if (!entry_of_.try_emplace(head, Entry{next_}).second) return;
  by_age_.emplace(next_++, head);
}

void DeferredSplitQueue::remove(Pfn head) {
  const auto found = entry_of_.find(head);
  FAULTLINE_CHECK(found != entry_of_.end());
  by_age_.erase(found->second.age);
  entry_of_.erase(found);
}

bool DeferredSplitQueue::set_partially_mapped(Pfn head) {
  return !std::exchange(entry_of_.at(head).partially_mapped, true);
}

void DeferredSplitQueue::requeue(Pfn head) {
  Entry& entry = entry_of_.at(head);
  by_age_.erase(entry.age);
  entry.age = next_++;
  by_age_.emplace(entry.age, head);
}

MmShared::MmShared(Kernel& kernel)
    : huge_pieces(kernel.profile().geometry.pmd_order()),
      page_locks(kernel),
      lru(kernel),
      lrus(kernel),
      swap(kernel),
      khugepaged(kernel),
      interrupts(kernel.profile().cpus),
      gather_limit(max_gathered(kernel.profile().geometry.page_size())),
      kernel_(kernel),
      vmscan_(std::make_unique<Vmscan>(kernel)),
      compaction_(std::make_unique<Compaction>(kernel)),
      vranges_(std::make_unique<Vranges>(kernel)) {}

MmShared::~MmShared() = default;

// get_huge_zero_page(), mm/huge_memory.c (v6.1).  Two tasks may both clear one; the second
// gives its own back.
MaybePfn MmShared::get_huge_zero_page(Task& task) {
  task.sync();
  if (!huge_zero_) {
    Scope scope(task, kGetHugeZeroPage);
    const unsigned order = kernel_.profile().geometry.pmd_order();
    task.charge(kernel_.profile().costs.huge_page_alloc);
    task.sync();
    AllocRequest request;
    request.order = order;
    request.preferred_node = task.node();
    request.type = MigrateType::kUnmovable;  // GFP_TRANSHUGE without __GFP_MOVABLE
    const auto page = kernel_.phys().alloc_pages(request, task.cpu());
    if (!page) {
      ++kernel_.vmstat().thp_zero_page_alloc_failed;
      return std::nullopt;
    }
    clear_huge_page(task, kernel_, *page);
    task.sync();
    if (huge_zero_) {
      kernel_.phys().free_pages(*page, order, task.cpu());
    } else {
      kernel_.phys().page(*page).flags |= Page::kZeroPage;
      huge_zero_ = page;
      ++kernel_.vmstat().thp_zero_page_alloc;
    }
  }
  return huge_zero_;
}

bool MmShared::free_huge_zero_page(int cpu) {
  if (!huge_zero_ || huge_zero_users_ > 0) return false;
  kernel_.phys().page(*huge_zero_).flags &= static_cast<std::uint16_t>(~Page::kZeroPage);
  kernel_.phys().free_pages(*huge_zero_, kernel_.profile().geometry.pmd_order(), cpu);
  huge_zero_.reset();
  return true;
}

std::unique_ptr<std::vector<MmShared::Gathered>> MmShared::take_gather_buffer() {
  if (gather_buffers_.empty()) return std::make_unique<std::vector<Gathered>>();
  auto buffer = std::move(gather_buffers_.back());
  gather_buffers_.pop_back();
  return buffer;
}

void MmShared::give_gather_buffer(std::unique_ptr<std::vector<Gathered>> buffer) {
  buffer->clear();
  gather_buffers_.push_back(std::move(buffer));
}

void MmShared::find_fault_path(Task& task) {
  CentreTree& tree = kernel_.engine().centres();
  const ArchCentres& centres = kernel_.centres();
  FaultPath path;
  path.from = task.where();
  path.entry = tree.child(path.from, centres.user_fault_entry);
  path.do_page_fault = path.entry;
  for (const Centre& centre : centres.fault_path)
    path.do_page_fault = tree.child(path.do_page_fault, centre);
  fault_path_ = path;
}

}  // namespace faultline::kernel
