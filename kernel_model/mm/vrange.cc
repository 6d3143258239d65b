// SPDX-License-Identifier: Apache-2.0
//
// Marking and un-marking: the tree of one address space, the slab and the list that all of
// them share.
//
// Stands for: vrange_add(), vrange_remove(), __vrange_resize(), vrange_fork() (mm/vrange.c,
// v7 to v10 of the patches).
#include "kernel_model/mm/vrange.h"

#include <algorithm>
#include <iterator>

#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/phys/phys_mem.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

// sizeof(struct vrange) on a 64-bit machine: a tree node with start, last and the subtree's
// last, the owner, the flag, the list.
constexpr std::uint64_t kNodeBytes = 80;
constexpr std::uint64_t kMinPartial = 5;  // MIN_PARTIAL of SLUB: empty slabs that stay

}  // namespace

Vranges::Vranges(Kernel& kernel)
    : kernel_(kernel),
      version_(kernel.config().vrange),
      lru_lock_(kernel.engine(), kernel.engine().locks().of("vrange_lru_lock"),
                kernel.lock_costs()) {}

Vranges::~Vranges() = default;

// Model: kernel memory never waits (see alloc_slowpath()), so neither does this.
bool Vranges::alloc_node(Task& task) {
  const std::uint64_t per_page = kernel_.profile().geometry.page_size() / kNodeBytes;
  if (nodes_ == slab_.size() * per_page) {
    task.charge(kernel_.profile().costs.page_alloc);
    task.sync();
    AllocRequest request;
    request.preferred_node = task.node();
    request.type = MigrateType::kUnmovable;
    const auto page = kernel_.phys().alloc_pages(request, task.cpu());
    if (!page) return false;
    kernel_.phys().page(*page).flags |= Page::kUnmovable;
    slab_.push_back(*page);
  }
  ++nodes_;
  return true;
}

// Model: nodes are packed, so that slabs fall empty one after the other.
void Vranges::free_node(Task& task) {
  FAULTLINE_CHECK_GT(nodes_, std::uint64_t{0});
  --nodes_;
  const std::uint64_t per_page = kernel_.profile().geometry.page_size() / kNodeBytes;
  const std::uint64_t needed = (nodes_ + per_page - 1) / per_page;
  if (slab_.size() <= needed + kMinPartial) return;
  kernel_.phys().page(slab_.back()).flags = 0;
  kernel_.phys().free_pages(slab_.back(), 0, task.cpu());
  slab_.pop_back();
}

void Vranges::link(Vrange& range, bool at_head) {
  FAULTLINE_CHECK(!range.on_lru);
  range.newer = at_head ? nullptr : oldest_;
  range.older = at_head ? newest_ : nullptr;
  (range.newer != nullptr ? range.newer->older : newest_) = &range;
  (range.older != nullptr ? range.older->newer : oldest_) = &range;
  range.on_lru = true;
  ++lru_length_;
  lru_bytes_ += range.range().bytes();
}

void Vranges::unlink(Vrange& range) {
  if (!range.on_lru) return;
  (range.newer != nullptr ? range.newer->older : newest_) = range.older;
  (range.older != nullptr ? range.older->newer : oldest_) = range.newer;
  range.newer = range.older = nullptr;
  range.on_lru = false;
  --lru_length_;
  lru_bytes_ -= range.range().bytes();
}

void Vranges::lru_add(Task& task, Vrange& range) {
  if (!has_lru()) return;
  lru_lock_.lock(task);
  unlink(range);
  link(range, true);
  lru_lock_.unlock(task);
}

void Vranges::lru_add_tail(Task& task, Vrange& range) {
  if (!has_lru()) return;
  lru_lock_.lock(task);
  unlink(range);
  link(range, false);
  lru_lock_.unlock(task);
}

void Vranges::lru_del(Task& task, Vrange& range) {
  if (!has_lru()) return;
  lru_lock_.lock(task);
  unlink(range);
  lru_lock_.unlock(task);
}

VrangeRoot::VrangeRoot(Mm& mm)
    : mm_(mm),
      lock_(mm.kernel().engine(), mm.kernel().engine().locks().of("mm->v_lock"),
            mm.kernel().lock_costs(),
            mm.kernel().config().mutex_spin ? MutexSpin::kYes : MutexSpin::kNo) {}

// The nodes of a process that still lives at the end of a run go with the kernel.
VrangeRoot::~VrangeRoot() = default;

VrangeRoot::Ranges::iterator VrangeRoot::first_overlap(Range range) {
  auto at = ranges_.upper_bound(range.start);
  if (at != ranges_.begin() && std::prev(at)->second.end > range.start) --at;
  return at != ranges_.end() && at->first < range.end ? at : ranges_.end();
}

Vrange* VrangeRoot::find(VirtAddr at) {
  const auto it = first_overlap({at, at + 1});
  return it == ranges_.end() ? nullptr : &it->second;
}

VrangeRoot::Ranges::iterator VrangeRoot::erase(Task& task, Ranges::iterator at) {
  Vranges& shared = mm_.kernel().mm_shared().vranges();
  shared.lru_del(task, at->second);
  task.charge(mm_.pages().costs().vrange_node);
  const auto next = ranges_.erase(at);
  shared.free_node(task);
  return next;
}

// The node has been allocated.
void VrangeRoot::insert(Task& task, Range range, bool purged) {
  task.charge(mm_.pages().costs().vrange_node);
  Vrange& node = ranges_[range.start];
  node.start = node.scan_from = range.start;
  node.end = range.end;
  node.purged = purged;
  node.root = this;
  mm_.kernel().mm_shared().vranges().lru_add(task, node);
}

// __vrange_resize(): out of the tree and in again, so it counts as marked just now.
void VrangeRoot::resize(Task& task, Ranges::iterator at, Range range) {
  Vranges& shared = mm_.kernel().mm_shared().vranges();
  shared.lru_del(task, at->second);
  auto handle = ranges_.extract(at);
  handle.key() = range.start;
  Vrange& node = handle.mapped();
  node.start = range.start;
  node.end = range.end;
  node.scan_from = std::clamp(node.scan_from, range.start, range.end);
  ranges_.insert(std::move(handle));
  task.charge(mm_.pages().costs().vrange_node);
  shared.lru_add(task, node);
}

// v7 leaves only a range alone that is larger on both sides; v8 and later any that holds
// the new one.
bool VrangeRoot::covers(const Vrange& old, Range range) const {
  if (mm_.kernel().config().vrange == VrangeVersion::k7)
    return old.start < range.start && range.end < old.end;
  return old.range().contains(range);
}

bool VrangeRoot::add(Task& task, Range range) {
  bool purged = false;
  for (auto at = first_overlap(range); at != ranges_.end() && at->first < range.end;) {
    const Vrange& old = at->second;
    if (covers(old, range)) return false;
    range = {std::min(range.start, old.start), std::max(range.end, old.end)};
    purged |= old.purged;
    at = erase(task, at);
  }
  insert(task, range, purged);
  return true;
}

bool VrangeRoot::remove(Task& task, Range range, bool& purged) {
  for (auto at = first_overlap(range); at != ranges_.end() && at->first < range.end;) {
    const Range old = at->second.range();
    purged |= at->second.purged;
    if (range.contains(old)) {
      at = erase(task, at);
    } else if (range.start <= old.start) {
      resize(task, at, {range.end, old.end});
      return false;
    } else if (old.end <= range.end) {
      const auto next = std::next(at);
      resize(task, at, {old.start, range.start});
      at = next;
    } else {
      const bool both = at->second.purged;
      resize(task, at, {old.start, range.start});
      insert(task, {range.end, old.end}, both);
      return true;
    }
  }
  return false;
}

void VrangeRoot::clear(Task& task) {
  lock_.lock(task);
  while (!ranges_.empty()) erase(task, ranges_.begin());
  lock_.unlock(task);
}

void VrangeRoot::copy_to(Task& task, VrangeRoot& child) {
  Vranges& shared = mm_.kernel().mm_shared().vranges();
  lock_.lock(task);
  for (const auto& [start, range] : ranges_) {
    task.charge(mm_.pages().costs().vrange_base);
    if (!shared.alloc_node(task)) break;
    child.insert(task, range.range(), range.purged);
  }
  lock_.unlock(task);
}

std::vector<VrangeView> vranges_of(Mm& mm) {
  std::vector<VrangeView> views;
  if (const VrangeRoot* root = mm.vranges())
    for (const auto& [start, range] : root->all())
      views.push_back({range.range(), range.purged});
  for (const Vma& vma : mm.vmas)
    if ((vma.vm_flags & VM_VOLATILE) != 0)
      views.push_back({vma.range(), (vma.vm_flags & VM_PURGED) != 0});
  return views;
}

}  // namespace faultline::kernel
