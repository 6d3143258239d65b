// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/phys/buddy.h"

#include <algorithm>

#include "sim/check.h"

namespace faultline::kernel {
namespace {

// A free block keeps its link back in the field that counts references of a used one.
std::uint32_t prev_of(const Page& page) {
  return static_cast<std::uint32_t>(page.refcount);
}
void set_prev(Page& page, std::uint32_t pfn) {
  page.refcount = static_cast<std::int32_t>(pfn);
}

MigrateType listed_type(const Page& page) {
  return (page.flags & Page::kUnmovable) ? MigrateType::kUnmovable : MigrateType::kMovable;
}
std::size_t index(MigrateType type) {
  return static_cast<std::size_t>(type);
}
MigrateType other(MigrateType type) {
  return type == MigrateType::kMovable ? MigrateType::kUnmovable : MigrateType::kMovable;
}

}  // namespace

Buddy::Buddy(FrameTable& frames, Pfn start, Pfn end, unsigned max_order,
             unsigned pageblock_order, bool group_by_mobility)
    : frames_(frames),
      start_(start.v),
      end_(end.v),
      max_order_(max_order),
      pageblock_order_(pageblock_order),
      group_by_mobility_(group_by_mobility) {
  FAULTLINE_CHECK_LT(max_order, kMaxOrders);
  FAULTLINE_CHECK_EQ(start.v & (frames_of(max_order) - 1), 0U);
  const std::uint64_t blocks =
      (std::uint64_t{end_} - start_ + frames_of(pageblock_order) - 1) >> pageblock_order;
  types_.assign(blocks,
                group_by_mobility ? MigrateType::kMovable : MigrateType::kUnmovable);
}

void Buddy::free_from(Pfn from) {
  FAULTLINE_CHECK(from.v >= start_ && from.v <= end_);
  const std::uint32_t block = frames_of(max_order_);
  for (std::size_t i = 0; i < types_.size() && start_ + (i << pageblock_order_) < from.v;
       ++i)
    types_[i] = MigrateType::kUnmovable;
  const auto free_each = [&](std::uint32_t pfn, std::uint32_t end) {
    while (pfn < end) {
      unsigned order = 0;
      while (order < max_order_ && !(pfn & frames_of(order)) &&
             pfn + frames_of(order + 1) <= end)
        ++order;
      add_free_block(pfn, order);
      pfn += frames_of(order);
    }
  };
  fresh_start_ = std::min((from.v + block - 1) & ~(block - 1), end_);
  fresh_end_ = std::max(end_ & ~(block - 1), fresh_start_);
  free_each(from.v, fresh_start_);
  free_each(fresh_end_, end_);
  nr_free_ += fresh_end_ - fresh_start_;
}

void Buddy::add_free_block(std::uint32_t pfn, unsigned order) {
  push(pfn, order, type_of({pfn}), true);
  nr_free_ += frames_of(order);
}

// A block of which not all is free: one half may be, the other holds the frame in use.
void Buddy::fill_broken_block(std::uint32_t pfn, unsigned order,
                              std::vector<std::uint64_t>& blocks) {
  if (order == 0) return;
  --order;
  if (blocks[order] > 0 && pfn + 2 * frames_of(order) <= end_) {
    --blocks[order];
    add_free_block(pfn + frames_of(order), order);
    fill_broken_block(pfn, order, blocks);
    return;
  }
  fill_broken_block(pfn, order, blocks);
  if (pfn + frames_of(order) < end_)
    fill_broken_block(pfn + frames_of(order), order, blocks);
}

bool Buddy::free_blocks(std::vector<std::uint64_t> blocks) {
  blocks.resize(max_order_ + 1);
  const std::uint32_t whole_end = end_ & ~(frames_of(max_order_) - 1);
  const std::uint64_t fresh = blocks[max_order_] << max_order_;
  if (fresh > whole_end - start_) return false;
  if (group_by_mobility_) types_[0] = MigrateType::kUnmovable;
  fresh_end_ = whole_end;
  fresh_start_ = whole_end - static_cast<std::uint32_t>(fresh);
  nr_free_ += fresh;
  for (std::uint32_t pfn = start_; pfn < end_; pfn += frames_of(max_order_))
    if (pfn < fresh_start_ || pfn >= fresh_end_) fill_broken_block(pfn, max_order_, blocks);
  blocks.pop_back();
  return std::ranges::all_of(blocks, [](std::uint64_t left) { return left == 0; });
}

void Buddy::push(std::uint32_t pfn, unsigned order, MigrateType type, bool at_tail) {
  FreeArea& area = areas_[order];
  List& list = area.lists[index(type)];
  Page& page = frames_[{pfn}];
  page.flags = Page::kBuddy | (type == MigrateType::kUnmovable ? Page::kUnmovable : 0);
  page.order = static_cast<std::uint8_t>(order);
  if (at_tail) {
    page.link = kNil;
    set_prev(page, list.tail);
    (list.tail == kNil ? list.head : frames_[{list.tail}].link) = pfn;
    list.tail = pfn;
  } else {
    set_prev(page, kNil);
    page.link = list.head;
    if (list.head == kNil)
      list.tail = pfn;
    else
      set_prev(frames_[{list.head}], pfn);
    list.head = pfn;
  }
  ++area.nr_free;
}

void Buddy::unlink(std::uint32_t pfn, unsigned order, MigrateType type) {
  FreeArea& area = areas_[order];
  List& list = area.lists[index(type)];
  Page& page = frames_[{pfn}];
  const std::uint32_t prev = prev_of(page);
  const std::uint32_t next = page.link;
  (prev == kNil ? list.head : frames_[{prev}].link) = next;
  if (next == kNil)
    list.tail = prev;
  else
    set_prev(frames_[{next}], prev);
  page.flags = 0;
  --area.nr_free;
}

bool Buddy::is_free_block(std::uint32_t pfn, unsigned order) const {
  if (pfn < start_ || pfn >= end_) return false;
  const Page& page = frames_[{pfn}];
  return (page.flags & Page::kBuddy) && page.order == order;
}

// Stands for: buddy_merge_likely().  A block whose next merge is near is handed out last.
bool Buddy::merge_likely(std::uint32_t pfn, unsigned order) const {
  if (order + 1 >= max_order_) return false;
  const std::uint32_t parent = pfn & ~(frames_of(order + 1) - 1);
  return is_free_block(parent ^ frames_of(order + 1), order + 1);
}

bool Buddy::has_exactly(unsigned order, MigrateType type) const {
  if (areas_[order].lists[index(type)].head != kNil) return true;
  const MigrateType fresh =
      group_by_mobility_ ? MigrateType::kMovable : MigrateType::kUnmovable;
  return order == max_order_ && type == fresh && fresh_start_ != fresh_end_;
}

std::uint32_t Buddy::take(unsigned order, MigrateType type) {
  const std::uint32_t head = areas_[order].lists[index(type)].head;
  if (head != kNil) {
    unlink(head, order, type);
    return head;
  }
  const std::uint32_t fresh = fresh_start_;
  fresh_start_ += frames_of(max_order_);
  return fresh;
}

void Buddy::expand(std::uint32_t pfn, unsigned low, unsigned high, MigrateType type) {
  while (high > low) {
    --high;
    push(pfn + frames_of(high), high, type, false);
  }
}

MaybePfn Buddy::rmqueue_smallest(unsigned order, MigrateType type) {
  for (unsigned o = order; o <= max_order_; ++o) {
    if (!has_exactly(o, type)) continue;
    const std::uint32_t pfn = take(o, type);
    expand(pfn, order, o, type);
    nr_free_ -= frames_of(order);
    return Pfn{pfn};
  }
  return std::nullopt;
}

// Stands for: move_freepages_block() and the end of steal_suitable_fallback(): all free
// blocks of the pageblock change lists, and the pageblock itself if half of it is free or
// already alike.
void Buddy::steal_pageblock(std::uint32_t pfn, MigrateType type) {
  const std::uint32_t first = pfn & ~(frames_of(pageblock_order_) - 1);
  const std::uint32_t last = std::min(first + frames_of(pageblock_order_), end_);
  std::uint32_t free = 0, movable = 0;
  for (std::uint32_t p = first; p < last;) {
    const Page& page = frames_[{p}];
    if (!(page.flags & Page::kBuddy)) {
      movable += (page.flags & (Page::kLru | Page::kAnon)) ? 1 : 0;
      ++p;
      continue;
    }
    const unsigned order = page.order;
    unlink(p, order, listed_type(page));
    push(p, order, type, false);
    free += frames_of(order);
    p += frames_of(order);
  }
  const std::uint32_t alike =
      type == MigrateType::kMovable ? movable : (last - first) - free - movable;
  if (free + alike >= frames_of(pageblock_order_) / 2)
    types_[(first - start_) >> pageblock_order_] = type;
}

// The largest block of the other type; of a movable request that can't have the whole
// pageblock, the smallest instead.
MaybePfn Buddy::rmqueue_fallback(unsigned order, MigrateType type) {
  const MigrateType from = other(type);
  unsigned found = max_order_ + 1;
  while (found > order && !has_exactly(found - 1, from)) --found;
  if (found == order) return std::nullopt;
  --found;
  const bool can_steal = found >= pageblock_order_ / 2 || type == MigrateType::kUnmovable;
  if (!can_steal)
    for (found = order; !has_exactly(found, from);) ++found;
  const std::uint32_t pfn = take(found, from);
  push(pfn, found, type, false);
  if (found >= pageblock_order_) {
    const std::size_t block = (pfn - start_) >> pageblock_order_;
    std::fill_n(types_.begin() + static_cast<std::ptrdiff_t>(block),
                frames_of(found - pageblock_order_), type);
  } else if (can_steal) {
    steal_pageblock(pfn, type);
  }
  return rmqueue_smallest(order, type);
}

MaybePfn Buddy::alloc(unsigned order, MigrateType type) {
  if (order > max_order_) return std::nullopt;
  if (!group_by_mobility_) type = MigrateType::kUnmovable;
  if (auto pfn = rmqueue_smallest(order, type)) return pfn;
  return rmqueue_fallback(order, type);
}

void Buddy::free(Pfn head, unsigned order) {
  std::uint32_t pfn = head.v;
  FAULTLINE_CHECK(pfn >= start_ && pfn + frames_of(order) <= end_);
  FAULTLINE_CHECK_EQ(pfn & (frames_of(order) - 1), 0U);
  const MigrateType type = type_of(head);
  nr_free_ += frames_of(order);
  while (order < max_order_) {
    const std::uint32_t buddy = pfn ^ frames_of(order);
    if (!is_free_block(buddy, order)) break;
    unlink(buddy, order, listed_type(frames_[{buddy}]));
    pfn &= ~frames_of(order);
    ++order;
  }
  push(pfn, order, type, merge_likely(pfn, order));
}

void Buddy::isolate(Pfn head) {
  const Page& page = frames_[head];
  FAULTLINE_CHECK((page.flags & Page::kBuddy) != 0);
  const unsigned order = page.order;
  unlink(head.v, order, listed_type(page));
  nr_free_ -= frames_of(order);
}

std::uint64_t Buddy::nr_free_blocks(unsigned order) const {
  return areas_[order].nr_free + (order == max_order_ ? fresh_blocks() : 0);
}

bool Buddy::has_block(unsigned order) const {
  for (unsigned o = order; o <= max_order_; ++o)
    if (nr_free_blocks(o) != 0) return true;
  return false;
}

std::uint64_t Buddy::check_list(unsigned order, MigrateType type) const {
  std::uint64_t blocks = 0;
  std::uint32_t prev = kNil;
  const List& list = areas_[order].lists[index(type)];
  for (std::uint32_t pfn = list.head; pfn != kNil; prev = pfn, pfn = frames_[{pfn}].link) {
    FAULTLINE_CHECK(is_free_block(pfn, order));
    FAULTLINE_CHECK_EQ(pfn & (frames_of(order) - 1), 0U);
    FAULTLINE_CHECK_EQ(prev_of(frames_[{pfn}]), prev);
    FAULTLINE_CHECK(listed_type(frames_[{pfn}]) == type);
    FAULTLINE_CHECK(order == max_order_ || !is_free_block(pfn ^ frames_of(order), order));
    ++blocks;
  }
  FAULTLINE_CHECK_EQ(list.tail, prev);
  return blocks;
}

void Buddy::check() const {
  std::uint64_t free = fresh_end_ - fresh_start_;
  for (unsigned order = 0; order <= max_order_; ++order) {
    const std::uint64_t blocks = check_list(order, MigrateType::kUnmovable) +
                                 check_list(order, MigrateType::kMovable);
    FAULTLINE_CHECK_EQ(blocks, areas_[order].nr_free);
    free += blocks << order;
  }
  FAULTLINE_CHECK_EQ(free, nr_free_);
}

}  // namespace faultline::kernel
