// SPDX-License-Identifier: Apache-2.0
//
// The buddy free lists of one zone: blocks of 1 << order frames, split on allocation and
// merged with their buddies when freed, kept apart by mobility so that page tables gather
// in few pageblocks.
//
// The blocks that were never touched since boot lie in one range of whole maximum-order
// blocks that is on no list; it counts as movable blocks behind the listed ones.
//
// Stands for: __rmqueue, __free_one_page, __rmqueue_fallback (mm/page_alloc.c, v4.15-6.18).
// Model: two migrate types; no CMA, no highatomic reserve; blocks are taken in ascending
// order at boot.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernel_model/phys/page.h"
#include "kernel_model/types.h"

namespace faultline::kernel {

enum class MigrateType : std::uint8_t { kUnmovable, kMovable };
inline constexpr std::size_t kMigrateTypes = 2;

class Buddy {
 public:
  static constexpr unsigned kMaxOrders = 24;

  // Frames [start, end) belong to the zone, none of them free yet; `start` is a multiple of
  // the largest block.  The frame table is shared with the other zones.
  Buddy(FrameTable& frames, Pfn start, Pfn end, unsigned max_order,
        unsigned pageblock_order, bool group_by_mobility);

  // At boot: frees [from, end of the zone) and makes the pageblocks below unmovable.
  void free_from(Pfn from);
  // At boot: frees blocks so that as many of each order are free as `blocks` says, and no
  // more: the frames between them are in use.  The whole blocks come last; the first
  // pageblock is unmovable.  Answers false if that many can't be placed without two of them
  // merging.
  [[nodiscard]] bool free_blocks(std::vector<std::uint64_t> blocks);

  // One block of exactly that order; its flags are clear.  nullopt if no list has one as
  // large.
  [[nodiscard]] MaybePfn alloc(unsigned order, MigrateType type);
  void free(Pfn head, unsigned order);

  // A listed free block leaves its list.
  void isolate(Pfn head);
  [[nodiscard]] std::uint64_t nr_free() const { return nr_free_; }  // frames
  [[nodiscard]] std::uint64_t nr_free_blocks(
      unsigned order) const;                           // of exactly that order
  [[nodiscard]] bool has_block(unsigned order) const;  // of that order or larger
  [[nodiscard]] MigrateType type_of(Pfn pfn) const {
    return types_[(pfn.v - start_) >> pageblock_order_];
  }
  [[nodiscard]] unsigned max_order() const { return max_order_; }
  [[nodiscard]] Pfn start() const { return {start_}; }
  [[nodiscard]] Pfn end() const { return {end_}; }

  // Walks every list and aborts if links, flags, counts or merging are not as they must be.
  void check() const;

 private:
  static constexpr std::uint32_t kNil = UINT32_MAX;
  struct List {
    std::uint32_t head = kNil, tail = kNil;
  };
  struct FreeArea {
    std::array<List, kMigrateTypes> lists;
    std::uint64_t nr_free = 0;
  };

  [[nodiscard]] static constexpr std::uint32_t frames_of(unsigned order) {
    return std::uint32_t{1} << order;
  }
  void add_free_block(std::uint32_t pfn, unsigned order);
  void fill_broken_block(std::uint32_t pfn, unsigned order,
                         std::vector<std::uint64_t>& blocks);
  void push(std::uint32_t pfn, unsigned order, MigrateType type, bool at_tail);
  void unlink(std::uint32_t pfn, unsigned order, MigrateType type);
  [[nodiscard]] bool is_free_block(std::uint32_t pfn, unsigned order) const;
  [[nodiscard]] bool merge_likely(std::uint32_t pfn, unsigned order) const;
  [[nodiscard]] MaybePfn rmqueue_smallest(unsigned order, MigrateType type);
  [[nodiscard]] MaybePfn rmqueue_fallback(unsigned order, MigrateType type);
  [[nodiscard]] std::uint32_t take(unsigned order,
                                   MigrateType type);  // from the list, or fresh
  [[nodiscard]] bool has_exactly(unsigned order, MigrateType type) const;
  void expand(std::uint32_t pfn, unsigned low, unsigned high, MigrateType type);
  void steal_pageblock(std::uint32_t pfn, MigrateType type);
  [[nodiscard]] std::uint64_t fresh_blocks() const {
    return (fresh_end_ - fresh_start_) >> max_order_;
  }
  [[nodiscard]] std::uint64_t check_list(unsigned order, MigrateType type) const;

  FrameTable& frames_;
  std::uint32_t start_, end_;
  unsigned max_order_, pageblock_order_;
  bool group_by_mobility_;
  std::uint32_t fresh_start_ = 0, fresh_end_ = 0;
  std::uint64_t nr_free_ = 0;
  std::array<FreeArea, kMaxOrders> areas_;
  std::vector<MigrateType> types_;  // of each pageblock
};

}  // namespace faultline::kernel
