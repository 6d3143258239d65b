// SPDX-License-Identifier: Apache-2.0
//
// The page tables of one address space as a data structure: real multi-level tables by the
// machine's geometry, without locks, costs or policy.
//
// Each table knows how many of its entries are in use and keeps one bit for each, so that
// walks over ranges with little in them cost the host little, however large the range.  A
// PTE table that is deposited under a huge page is only counted; it gets host memory when
// the huge page is split.
//
// Stands for: pgd_t … pte_t and the table allocators (arch/*/mm/pgtable*.c, pgalloc.h),
// with POWER's and s390's fragments: several tables share one page, and that page's lock.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "arch_profiles/profile.h"
#include "kernel_model/mm/pte.h"
#include "kernel_model/types.h"
#include "sim/locks.h"

namespace faultline::kernel {

class PhysMem;

// One level as shifts and masks.
struct LevelShape {
  unsigned shift = 0;             // an entry covers 1 << shift bytes
  unsigned bits = 0;              // log2 of entries
  std::uint64_t table_bytes = 0;  // of memory; VmPTE counts entries only
  std::uint64_t tables_per_page = 1;
  // What mm_inc_nr_ptes() and its sisters count: PTRS_PER_PTE * sizeof(pte_t).
  [[nodiscard]] std::uint64_t counted_bytes() const { return std::uint64_t{8} << bits; }
  [[nodiscard]] std::uint64_t entries() const { return std::uint64_t{1} << bits; }
  [[nodiscard]] std::uint64_t entry_bytes() const { return std::uint64_t{1} << shift; }
  [[nodiscard]] std::uint64_t index(VirtAddr at) const {
    return (at.v >> shift) & (entries() - 1);
  }
};

// The page (struct page, ptdesc) that one or more tables live in, with its spinlock.
struct TablePage {
  Pfn pfn;
  std::uint8_t order = 0;
  std::uint8_t level = 0;
  std::uint32_t refs = 0;          // tables in it, and one while more may be handed out
  std::uint32_t users = 0;         // tasks that hold or await its lock: it can't go away
  std::uint64_t handed_out = 0;    // fragments so far
  std::unique_ptr<SpinLock> lock;  // made at first use
};

struct Table {
  TablePage* page = nullptr;
  Table* parent = nullptr;  // null for the top table
  VirtAddr start;           // first address that it maps
  std::uint32_t used = 0;   // entries that are not none
  std::uint8_t level = 0;
  Pte* entry = nullptr;
  std::uint64_t* in_use = nullptr;  // one bit an entry
  TablePage** deposit = nullptr;    // PMD level: the table deposited under each huge entry
};

class PageTableTree {
 public:
  PageTableTree(const arch::Geometry& geometry, PhysMem& phys);
  ~PageTableTree();
  PageTableTree(const PageTableTree&) = delete;
  PageTableTree& operator=(const PageTableTree&) = delete;

  [[nodiscard]] unsigned levels() const { return levels_; }
  [[nodiscard]] unsigned pmd_level() const { return levels_ - 2; }
  [[nodiscard]] unsigned pte_level() const { return levels_ - 1; }
  [[nodiscard]] const LevelShape& shape(unsigned level) const { return shapes_[level]; }
  [[nodiscard]] Table& top() { return *top_; }

  // The table of that level that maps `at`; null if there is none (or a leaf above it).
  [[nodiscard]] Table* find(VirtAddr at, unsigned level) const {
    Table* table = top_;
    for (unsigned l = 0; l < level; ++l) {
      const Pte entry = table->entry[shapes_[l].index(at)];
      if (!entry.is_table()) return nullptr;
      table = to_table(entry);
    }
    return table;
  }
  // As find(at, pte_level()), remembering the last table.
  [[nodiscard]] Table* find_pte_table(VirtAddr at) const {
    const std::uint64_t tag = at.v >> shapes_[levels_ - 2].shift;
    if (last_pte_table_ != nullptr && tag == last_tag_) return last_pte_table_;
    const Table* const pmd = find_pmd_table(at);
    if (pmd == nullptr) return nullptr;
    const Pte entry = get(*pmd, at);
    if (!entry.is_table()) return nullptr;
    last_tag_ = tag;
    last_pte_table_ = to_table(entry);
    return last_pte_table_;
  }
  [[nodiscard]] Table* find_pmd_table(VirtAddr at) const {
    const std::uint64_t tag =
        at.v >> (shapes_[levels_ - 2].shift + shapes_[levels_ - 2].bits);
    if (last_pmd_table_ != nullptr && tag == last_pmd_tag_) return last_pmd_table_;
    Table* const table = find(at, levels_ - 2);
    if (table != nullptr) {
      last_pmd_tag_ = tag;
      last_pmd_table_ = table;
    }
    return table;
  }
  // The leaf that maps `at` at either level, or an empty entry.
  [[nodiscard]] Pte leaf_at(VirtAddr at) const;
  [[nodiscard]] Pte get(const Table& table, VirtAddr at) const {
    return table.entry[shapes_[table.level].index(at)];
  }
  // Writes a leaf or an empty entry; keeps `used` and the bits.
  void set(Table& table, VirtAddr at, Pte value) {
    set_index(table, shapes_[table.level].index(at), value);
  }
  void set_index(Table& table, std::uint64_t index, Pte value);
  // All entries of an empty table at once: the same one, or one subpage after the other.
  enum class Fill : std::uint8_t { kSame, kSubpages };
  void fill(Table& table, Pte first, Fill how);
  // Entries from `from` on, none of which is in use, map base pages.
  static void set_run(Table& table, std::uint64_t from, const Pfn* pages,
                      std::uint64_t count, std::uint64_t bits);
  // Makes entries [from, to), all in use, none.
  static void clear_run(Table& table, std::uint64_t from, std::uint64_t to);
  [[nodiscard]] static Table* to_table(Pte entry);

  // Where the first entry in use at or above `at` and below `end` of that level's tables
  // begins; `end` if there is none.  Never answers below `at`.
  [[nodiscard]] VirtAddr next_in_use(VirtAddr at, VirtAddr end, unsigned level) const;
  // How many entries of the level's existing tables `range` covers.
  [[nodiscard]] std::uint64_t entries_in_existing_tables(Range range, unsigned level) const;
  // First used index of the table in [from, to); `to` if none.
  [[nodiscard]] static std::uint64_t next_index(const Table& table, std::uint64_t from,
                                                std::uint64_t to) {
    if (from >= to) return to;
    std::uint64_t word = from >> 6;
    std::uint64_t bits = table.in_use[word] & (~std::uint64_t{0} << (from & 63));
    const std::uint64_t last = (to - 1) >> 6;
    while (bits == 0) {
      if (word == last) return to;
      bits = table.in_use[++word];
    }
    const auto first = static_cast<std::uint64_t>(std::countr_zero(bits));
    return std::min<std::uint64_t>(to, (word << 6) + first);
  }

  // A page for a new table of that level: a fragment of the mm's current page or a new
  // page. Null if there is no memory.  Counted in pgtables_bytes from install or deposit
  // on.
  [[nodiscard]] TablePage* alloc_table_page(unsigned level, int node, int cpu);
  void put_table_page(TablePage* page, int cpu);
  // Ends a task's interest in the page's lock (TablePage::users).
  void put_lock_user(TablePage* page) {
    if (--page->users == 0 && page->refs == 0) [[unlikely]]
      give_back(page);
  }
  // Hangs an empty table on the entry of `parent` that maps `at`.
  Table& install(Table& parent, VirtAddr at, TablePage* page);
  // Takes an empty table out of its parent; its page stays referenced by the caller.
  TablePage* detach(Table& table);
  // The table deposited under the huge entry that maps `at`.
  void deposit(Table& pmd, VirtAddr at, TablePage* page);
  [[nodiscard]] TablePage* withdraw(Table& pmd, VirtAddr at);
  // Moves a huge entry or a whole PTE table, with its deposit, to another empty PMD entry.
  void move_pmd(Table& from, VirtAddr old_at, Table& to, VirtAddr new_at);

  // PTE, PMD and PUD tables incl. deposits, without the PGD: VmPTE.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Pages of physical memory that hold tables.
  [[nodiscard]] std::uint64_t table_pages() const { return table_pages_; }

 private:
  struct Level;
  Table* new_table(unsigned level, VirtAddr start, Table* parent, TablePage* page);
  void recycle(Table* table);
  void free_below(Table& table);
  void release_page(TablePage* page, int cpu);
  void give_back(TablePage* page);
  [[nodiscard]] VirtAddr next_below(const Table& table, VirtAddr at, VirtAddr end,
                                    unsigned level) const;
  [[nodiscard]] std::uint64_t count_below(const Table& table, Range range,
                                          unsigned level) const;

  PhysMem& phys_;
  std::uint64_t page_size_;
  unsigned levels_;
  bool has_thp_;
  std::array<LevelShape, 6> shapes_{};
  std::vector<Level> pools_;
  Table* top_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t table_pages_ = 0;
  mutable std::uint64_t last_tag_ = 0;
  mutable Table* last_pte_table_ = nullptr;
  mutable std::uint64_t last_pmd_tag_ = 0;
  mutable Table* last_pmd_table_ = nullptr;
};

}  // namespace faultline::kernel
