// SPDX-License-Identifier: Apache-2.0
//
// LRU lists and the reverse map: see lru.h.
#include "kernel_model/mm/lru.h"

#include <algorithm>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/phys/phys_mem.h"
#include "sim/check.h"

namespace faultline::kernel {
namespace {

// page_lru()
LruList list_of(const Page& page) {
  if ((page.flags & Page::kUnevictable) != 0) return LruList::kUnevictable;
  const bool file = (page.flags & Page::kSwapbacked) == 0;
  const bool active = (page.flags & Page::kActive) != 0;
  if (file) return active ? LruList::kActiveFile : LruList::kInactiveFile;
  return active ? LruList::kActiveAnon : LruList::kInactiveAnon;
}

}  // namespace

Lru::Lru(Kernel& kernel)
    : kernel_(kernel), lists_(kernel.profile().nodes.size() * kLruLists) {}

Lru::~Lru() = default;

void Lru::start() {
  if (lists_kept_) return;
  memory_.reserve(kernel_.phys().frames() * sizeof(Node));
  nodes_ = static_cast<Node*>(memory_.data());
  lists_kept_ = true;
  std::vector<Found> found;
  collect_mapped(found);
  collect_cached(found);
  std::sort(found.begin(), found.end());
  for (const Found& f : found) {
    if (nodes_[f.head.v].on_list == 0) link(kernel_.phys().page(f.head), f.head);
  }
}

void Lru::collect_mapped(std::vector<Found>& found) {
  PhysMem& phys = kernel_.phys();
  const unsigned shift = kernel_.profile().geometry.page_shift;
  const std::uint64_t size = kernel_.profile().geometry.page_size();
  for (const auto& process : kernel_.processes()) {
    Mm& mm = process->mm();
    for (const Vma& vma : mm.vmas) {
      mm.pages().for_each_present(vma.range(), [&](Range run, const PageView& view) {
        if (view.file || (view.kind != PageView::kBase && view.kind != PageView::kHuge))
          return;
        const std::uint64_t step = view.kind == PageView::kHuge ? run.bytes() : size;
        for (VirtAddr at = run.start; at < run.end; at = at + step) {
          const Pfn page = mm.pages().look(at).pfn;
          const Pfn head = compound_head(kernel_, page);
          if (head == page) nodes_[page.v].index = vma.linear_page_index(at, shift);
          if ((phys.page(head).flags & Page::kLru) != 0)
            found.push_back({phys.page(head).link, head});
        }
      });
    }
  }
}

void Lru::collect_cached(std::vector<Found>& found) {
  for (const auto& [id, file] : kernel_.mm_shared().files.all())
    for (const auto& [index, page] : file->cached()) {
      note_file_index(page, id, index);
      if ((kernel_.phys().page(page).flags & Page::kLru) != 0)
        found.push_back({kernel_.phys().page(page).link, page});
    }
}

void Lru::add_to_list(Page& page, Pfn head) {
  if (!lists_kept_) start();  // the stamps have run out
  if ((page.flags & Page::kLru) != 0 && nodes_[head.v].on_list == 0) link(page, head);
}

// A page's place is filled in; the caller hooks it into the list that it answers.
Lru::List& Lru::enter(const Page& page, Pfn head) {
  Node& n = nodes_[head.v];
  n.list = static_cast<std::uint8_t>(list_of(page));
  n.node = static_cast<std::uint8_t>(kernel_.phys().node_of(head));
  n.pages = std::uint32_t{1} << page.order;
  n.on_list = 1;
  List& list = list_at(n);
  list.pages += n.pages;
  return list;
}

void Lru::link(const Page& page, Pfn head) {
  List& list = enter(page, head);
  Node& n = nodes_[head.v];
  n.prev = UINT32_MAX;
  n.next = list.head;
  (list.head == UINT32_MAX ? list.tail : nodes_[list.head].prev) = head.v;
  list.head = head.v;
}

void Lru::del_from_list(const Page&, Pfn head) {
  Node& n = nodes_[head.v];
  n.referenced = 0;
  if (n.on_list == 0) return;
  List& list = list_at(n);
  (n.prev == UINT32_MAX ? list.head : nodes_[n.prev].next) = n.next;
  (n.next == UINT32_MAX ? list.tail : nodes_[n.next].prev) = n.prev;
  list.pages -= n.pages;
  n.on_list = 0;
}

void Lru::split_head(Pfn head) {
  if (!lists_kept_) return;
  Node& n = nodes_[head.v];
  if (n.on_list == 0) return;
  list_at(n).pages -= n.pages - 1;
  n.pages = 1;
}

bool Lru::add_piece(const Page& page, Pfn piece, Pfn behind) {
  if (!lists_kept_ || (page.flags & Page::kLru) == 0) return false;
  const Node& before = nodes_[behind.v];
  if (before.on_list == 0) return false;
  Node& n = nodes_[piece.v];
  n.list = before.list;
  n.node = before.node;
  n.pages = 1;
  n.on_list = 1;
  n.referenced = 0;
  n.next = behind.v;
  n.prev = before.prev;
  List& list = list_at(n);
  (n.prev == UINT32_MAX ? list.head : nodes_[n.prev].next) = piece.v;
  nodes_[behind.v].prev = piece.v;
  ++list.pages;
  return true;
}

void Lru::add_tail(Page& page, Pfn head) {
  page.link = 0;
  List& list = enter(page, head);
  Node& n = nodes_[head.v];
  n.next = UINT32_MAX;
  n.prev = list.tail;
  (list.tail == UINT32_MAX ? list.head : nodes_[list.tail].next) = head.v;
  list.tail = head.v;
}

bool Lru::tail(int node, LruList list, Pfn& page) const {
  const List& l =
      lists_[static_cast<std::size_t>(node) * kLruLists + static_cast<std::size_t>(list)];
  if (l.tail == UINT32_MAX) return false;
  page = {l.tail};
  return true;
}

bool Lru::isolate(Pfn head) {
  if (nodes_[head.v].on_list == 0) return false;
  Page& page = kernel_.phys().page(head);
  const std::uint8_t referenced = nodes_[head.v].referenced;
  del_from_list(page, head);
  nodes_[head.v].referenced = referenced;
  page.flags &= static_cast<std::uint16_t>(~Page::kLru);
  ++page.refcount;
  return true;
}

void Lru::putback(Pfn head, int cpu) {
  Page& page = kernel_.phys().page(head);
  if (page.refcount > 1) {
    page.flags |= Page::kLru;
    const std::uint8_t referenced = nodes_[head.v].referenced;
    add(page, head);
    nodes_[head.v].referenced = referenced;
  }
  put_page(kernel_, head, cpu);
}

bool Lru::places_in(Mm& mm, Pfn page, std::uint64_t index, std::int32_t& left,
                    const std::function<bool(Mm&, const Vma&, VirtAddr)>& f) const {
  const unsigned shift = kernel_.profile().geometry.page_shift;
  const auto visit = [&](const Vma& vma, VirtAddr at) {
    const Pte entry = mm.pages().tree().leaf_at(at);
    if (!entry.maps_anon() || entry.pfn() != page) return true;
    --left;
    return f(mm, vma, at);
  };
  // Nearly always it is where its index says: the mapping hasn't moved.
  const VirtAddr usual{index << shift};
  const Vma* first = mm.vma_at(usual);
  if (first != nullptr && first->vm_pgoff != first->start.v >> shift) first = nullptr;
  if (first != nullptr && !visit(*first, usual)) return false;
  for (const Vma& vma : mm.vmas) {
    if (left <= 0) break;
    if (&vma == first || !vma.anon_vma || index < vma.vm_pgoff ||
        index >= vma.vm_pgoff + (vma.bytes() >> shift))
      continue;
    if (!visit(vma, vma.start + ((index - vma.vm_pgoff) << shift))) return false;
  }
  return true;
}

void Lru::for_each_place(Pfn page,
                         const std::function<bool(Mm&, const Vma&, VirtAddr)>& f) const {
  const unsigned shift = kernel_.profile().geometry.page_shift;
  const std::uint32_t file_id = file_of(page);
  const std::uint64_t index = index_of(page);
  std::int32_t left = kernel_.phys().page(page).mapcount;
  const auto& processes = kernel_.processes();
  // A page's neighbours on a list are often of the same process.
  const bool alone = file_id == 0 && left == 1;
  if (alone && last_found_ < processes.size()) {
    static_cast<void>(places_in(processes[last_found_]->mm(), page, index, left, f));
    if (left <= 0) return;
  }
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (left <= 0) return;
    Mm& mm = processes[i]->mm();
    if (file_id == 0) {
      if (alone && i == last_found_) continue;
      const bool more = places_in(mm, page, index, left, f);
      if (alone && left <= 0) last_found_ = i;
      if (!more) return;
      continue;
    }
    for (const Vma& vma : mm.vmas) {
      if (!vma.file || vma.file->id() != file_id || index < vma.vm_pgoff ||
          index >= vma.vm_pgoff + (vma.bytes() >> shift))
        continue;
      const VirtAddr at = vma.start + ((index - vma.vm_pgoff) << shift);
      const Pte entry = mm.pages().tree().leaf_at(at);
      if (!entry.maps_file() || entry.pfn() != page) continue;
      --left;
      if (!f(mm, vma, at)) return;
    }
  }
}

// A place is undone after the walk that finds it: taking its lock may let time pass.
bool Lru::undo_places(Pfn page,
                      const std::function<bool(Mm&, const Vma&, VirtAddr)>& wanted,
                      const std::function<bool(Mm&, VirtAddr)>& undo) const {
  const Page& frame = kernel_.phys().page(page);
  for (std::int32_t left = frame.mapcount; left > 0; --left) {
    Mm* found = nullptr;
    VirtAddr where;
    for_each_place(page, [&](Mm& mm, const Vma& vma, VirtAddr at) {
      if (!wanted(mm, vma, at)) return true;
      found = &mm;
      where = at;
      return false;
    });
    if (found == nullptr) break;
    const MmGrab grab(*found);
    if (!undo(*found, where)) break;
  }
  return frame.mapcount == 0;
}

std::uint32_t Lru::file_of(Pfn page) const {
  const std::uint64_t index = nodes_[page.v].index;
  if ((index & kOfFile) == 0) return 0;
  return static_cast<std::uint32_t>((index & ~kOfFile) >> kFileShift);
}

std::uint64_t Lru::index_of(Pfn page) const {
  const std::uint64_t index = nodes_[page.v].index;
  if ((index & kOfFile) == 0) return index;
  return index & ((std::uint64_t{1} << kFileShift) - 1);
}

void Lru::check() const {
  if (!lists_kept_) return;
  for (std::size_t i = 0; i < lists_.size(); ++i) {
    std::uint64_t pages = 0;
    std::uint32_t prev = UINT32_MAX;
    for (std::uint32_t at = lists_[i].head; at != UINT32_MAX; at = nodes_[at].next) {
      const Page& page = kernel_.phys().page({at});
      FAULTLINE_CHECK_EQ(nodes_[at].prev, prev);
      FAULTLINE_CHECK((page.flags & Page::kLru) != 0);
      FAULTLINE_CHECK((page.flags & (Page::kBuddy | Page::kPcp | Page::kTail)) == 0);
      FAULTLINE_CHECK_EQ(std::uint32_t{1} << page.order, nodes_[at].pages);
      FAULTLINE_CHECK_GT(page.refcount, 0);
      pages += nodes_[at].pages;
      prev = at;
    }
    FAULTLINE_CHECK_EQ(lists_[i].tail, prev);
    FAULTLINE_CHECK_EQ(lists_[i].pages, pages);
  }
}

}  // namespace faultline::kernel
