// SPDX-License-Identifier: Apache-2.0
//
// Tables: their memory on the host, their pages in the model, and walks that skip what is
// empty.
#include "kernel_model/mm/page_table_tree.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "kernel_model/phys/phys_mem.h"
#include "sim/check.h"

namespace faultline::kernel {

// Host memory of one level's tables.  A freed table is empty, so it is reused without
// clearing.
struct PageTableTree::Level {
  std::vector<Table*> free;
  std::vector<std::unique_ptr<TablePage>> free_pages;
  TablePage* current = nullptr;  // has fragments left to hand out
};

PageTableTree::PageTableTree(const arch::Geometry& geometry, PhysMem& phys)
    : phys_(phys),
      page_size_(geometry.page_size()),
      levels_(static_cast<unsigned>(geometry.levels.size())),
      has_thp_(geometry.has_thp),
      pools_(geometry.levels.size()) {
  FAULTLINE_CHECK(levels_ >= 2 && levels_ <= shapes_.size());
  unsigned shift = geometry.page_shift;
  for (unsigned l = levels_; l-- > 0;) {
    const arch::TableLevel& level = geometry.levels[l];
    shapes_[l] = {shift, level.index_bits, level.table_bytes, level.tables_per_page};
    shift += level.index_bits;
  }
  FAULTLINE_CHECK_EQ(shapes_[pmd_level()].shift, geometry.pmd_shift);
  top_ = new_table(0, VirtAddr{0}, nullptr, nullptr);
}

PageTableTree::~PageTableTree() {
  free_below(*top_);
  std::free(top_);
  for (Level& level : pools_) {
    for (Table* table : level.free) std::free(table);
    delete level.current;
  }
}

// Host memory only: the model's pages go with the machine, or were freed by exit_mmap
// before.
void PageTableTree::free_below(Table& table) {
  const std::uint64_t entries = shapes_[table.level].entries();
  for (std::uint64_t i = next_index(table, 0, entries); i < entries;
       i = next_index(table, i + 1, entries)) {
    if (table.deposit != nullptr && table.deposit[i] != nullptr) {
      TablePage* page = table.deposit[i];
      if (--page->refs == 0) delete page;
    }
    if (!table.entry[i].is_table()) continue;
    Table* child = to_table(table.entry[i]);
    free_below(*child);
    if (--child->page->refs == 0) delete child->page;
    std::free(child);
  }
}

Table* PageTableTree::to_table(Pte entry) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the entry is the pointer, as in the kernel
  return reinterpret_cast<Table*>(static_cast<std::uintptr_t>(entry.raw()));
}

Pte PageTableTree::leaf_at(VirtAddr at) const {
  if (last_pte_table_ != nullptr && at.v >> shapes_[levels_ - 2].shift == last_tag_)
    return get(*last_pte_table_, at);
  const Table* pmd = find_pmd_table(at);
  if (pmd == nullptr) return Pte{};
  const Pte entry = get(*pmd, at);
  if (!entry.is_table()) return entry;
  last_tag_ = at.v >> shapes_[levels_ - 2].shift;
  last_pte_table_ = to_table(entry);
  return get(*last_pte_table_, at);
}

void PageTableTree::set_index(Table& table, std::uint64_t index, Pte value) {
  Pte& slot = table.entry[index];
  if (slot.none() != value.none()) {
    const std::uint64_t bit = std::uint64_t{1} << (index & 63);
    table.in_use[index >> 6] ^= bit;
    if (value.none())
      --table.used;
    else
      ++table.used;
  }
  slot = value;
}

void PageTableTree::fill(Table& table, Pte first, Fill how) {
  FAULTLINE_CHECK_EQ(table.used, 0U);
  const std::uint64_t entries = std::uint64_t{1} << shapes_[table.level].bits;
  const std::uint64_t step =
      how == Fill::kSame ? 0 : first.at_subpage(1).raw() - first.raw();
  Pte* const entry = table.entry;
  constexpr std::uint64_t kStride = 4;  // as many sums at a time
  FAULTLINE_CHECK_EQ(entries % kStride, 0U);
  for (std::uint64_t i = 0; i < entries; i += kStride)
    for (std::uint64_t j = 0; j < kStride; ++j)
      entry[i + j] = Pte{first.raw() + (i + j) * step};
  for (std::uint64_t word = 0; word < (entries + 63) / 64; ++word)
    table.in_use[word] =
        entries >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << entries) - 1;
  table.used = static_cast<decltype(table.used)>(entries);
}

namespace {

// The bits of entries [from, to), which are all alike, change.
void flip_in_use(Table& table, std::uint64_t from, std::uint64_t to) {
  for (std::uint64_t word = from >> 6; word <= (to - 1) >> 6; ++word) {
    const std::uint64_t low = word == from >> 6 ? from & 63 : 0;
    const std::uint64_t high = word == (to - 1) >> 6 ? (to - 1) & 63 : 63;
    table.in_use[word] ^= (~std::uint64_t{0} >> (63 - high)) & (~std::uint64_t{0} << low);
  }
}

}  // namespace

void PageTableTree::set_run(Table& table, std::uint64_t from, const Pfn* pages,
                            std::uint64_t count, std::uint64_t bits) {
  if (count == 0) return;
  for (std::uint64_t i = 0; i < count; ++i)
    table.entry[from + i] = Pte::leaf(pages[i], bits);
  flip_in_use(table, from, from + count);
  table.used += static_cast<decltype(table.used)>(count);
}

void PageTableTree::clear_run(Table& table, std::uint64_t from, std::uint64_t to) {
  std::fill(&table.entry[from], &table.entry[to], Pte{});
  flip_in_use(table, from, to);
  table.used -= static_cast<decltype(table.used)>(to - from);
}

VirtAddr PageTableTree::next_in_use(VirtAddr at, VirtAddr end, unsigned level) const {
  return at < end ? next_below(*top_, at, end, level) : end;
}

VirtAddr PageTableTree::next_below(const Table& table, VirtAddr at, VirtAddr end,
                                   unsigned level) const {
  const LevelShape& shape = shapes_[table.level];
  const std::uint64_t table_end = table.start.v + (shape.entries() << shape.shift);
  const std::uint64_t from = (std::max(at.v, table.start.v) - table.start.v) >> shape.shift;
  const std::uint64_t to =
      (std::min(end.v, table_end) - table.start.v + shape.entry_bytes() - 1) >> shape.shift;
  for (std::uint64_t i = next_index(table, from, to); i < to;
       i = next_index(table, i + 1, to)) {
    const VirtAddr here{std::max(at.v, table.start.v + (i << shape.shift))};
    if (table.level == level) return here;
    if (!table.entry[i].is_table()) continue;
    const VirtAddr found = next_below(*to_table(table.entry[i]), here, end, level);
    if (found < end) return found;
  }
  return end;
}

std::uint64_t PageTableTree::entries_in_existing_tables(Range range, unsigned level) const {
  return range.empty() ? 0 : count_below(*top_, range, level);
}

std::uint64_t PageTableTree::count_below(const Table& table, Range range,
                                         unsigned level) const {
  const LevelShape& shape = shapes_[table.level];
  const std::uint64_t table_end = table.start.v + (shape.entries() << shape.shift);
  const std::uint64_t from =
      (std::max(range.start.v, table.start.v) - table.start.v) >> shape.shift;
  const std::uint64_t to =
      (std::min(range.end.v, table_end) - table.start.v + shape.entry_bytes() - 1) >>
      shape.shift;
  if (table.level == level) return to - from;
  std::uint64_t count = 0;
  for (std::uint64_t i = next_index(table, from, to); i < to;
       i = next_index(table, i + 1, to))
    if (table.entry[i].is_table())
      count += count_below(*to_table(table.entry[i]), range, level);
  return count;
}

Table* PageTableTree::new_table(unsigned level, VirtAddr start, Table* parent,
                                TablePage* page) {
  Level& pool = pools_[level];
  Table* table = nullptr;
  if (!pool.free.empty()) {
    table = pool.free.back();
    pool.free.pop_back();
  } else {
    const std::uint64_t entries = shapes_[level].entries();
    const std::uint64_t words = (entries + 63) / 64;
    const bool deposits = has_thp_ && level == pmd_level();
    const std::uint64_t bytes = sizeof(Table) + entries * sizeof(Pte) + words * 8 +
                                (deposits ? entries * sizeof(void*) : 0);
    auto* memory = static_cast<std::byte*>(std::calloc(1, bytes));
    FAULTLINE_CHECK(memory != nullptr);
    table = new (memory) Table{};
    memory += sizeof(Table);
    table->entry = reinterpret_cast<Pte*>(memory);
    table->in_use = reinterpret_cast<std::uint64_t*>(memory + entries * sizeof(Pte));
    if (deposits)
      table->deposit =
          reinterpret_cast<TablePage**>(memory + entries * sizeof(Pte) + words * 8);
  }
  table->page = page;
  table->parent = parent;
  table->start = start;
  table->level = static_cast<std::uint8_t>(level);
  return table;
}

void PageTableTree::recycle(Table* table) {
  FAULTLINE_CHECK_EQ(table->used, 0U);
  pools_[table->level].free.push_back(table);
}

// pte_fragment_alloc() (arch/powerpc/mm/pgtable-frag.c): the mm hands out the fragments of
// one page in order before it takes the next page.
TablePage* PageTableTree::alloc_table_page(unsigned level, int node, int cpu) {
  const LevelShape& shape = shapes_[level];
  Level& pool = pools_[level];
  if (TablePage* page = pool.current; page != nullptr) {
    ++page->refs;
    if (++page->handed_out == shape.tables_per_page) {
      --page->refs;
      pool.current = nullptr;
    }
    return page;
  }
  const std::uint64_t bytes =
      std::max(shape.table_bytes * shape.tables_per_page, page_size_);
  const auto order =
      static_cast<unsigned>(std::countr_zero(std::bit_ceil(bytes / page_size_)));
  AllocRequest request;
  request.order = order;
  request.preferred_node = node;
  request.type = MigrateType::kUnmovable;
  const auto pfn = phys_.alloc_pages(request, cpu);
  if (!pfn) return nullptr;
  phys_.page(*pfn).flags |= Page::kTable;
  table_pages_ += std::uint64_t{1} << order;
  TablePage* page = nullptr;
  if (pool.free_pages.empty()) {
    page = new TablePage;
  } else {
    page = pool.free_pages.back().release();
    pool.free_pages.pop_back();
  }
  page->pfn = *pfn;
  page->order = static_cast<std::uint8_t>(order);
  page->level = static_cast<std::uint8_t>(level);
  page->refs = 1;
  page->handed_out = 1;
  if (shape.tables_per_page > 1) {
    ++page->refs;
    pool.current = page;
  }
  return page;
}

void PageTableTree::put_table_page(TablePage* page, int cpu) {
  FAULTLINE_CHECK(page->refs > 0);
  if (--page->refs == 0) release_page(page, cpu);
}

void PageTableTree::release_page(TablePage* page, int cpu) {
  phys_.page(page->pfn).flags &= static_cast<std::uint16_t>(~Page::kTable);
  phys_.free_pages(page->pfn, page->order, cpu);
  table_pages_ -= std::uint64_t{1} << page->order;
  // A task may still wait for the lock of the dead page (the kernel keeps it by RCU); it
  // finds the entry changed and retries.  Then the last of them gives the page back.
  if (page->users == 0) give_back(page);
}

void PageTableTree::give_back(TablePage* page) {
  pools_[page->level].free_pages.emplace_back(page);
}

Table& PageTableTree::install(Table& parent, VirtAddr at, TablePage* page) {
  const LevelShape& shape = shapes_[parent.level];
  const std::uint64_t index = shape.index(at);
  FAULTLINE_CHECK(parent.entry[index].none());
  const VirtAddr start{parent.start.v + (index << shape.shift)};
  Table* table = new_table(parent.level + 1U, start, &parent, page);
  set_index(parent, index,
            Pte{static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(table))});
  bytes_ += shapes_[parent.level + 1U].counted_bytes();
  return *table;
}

TablePage* PageTableTree::detach(Table& table) {
  set(*table.parent, table.start, Pte{});
  bytes_ -= shapes_[table.level].counted_bytes();
  TablePage* page = table.page;
  if (last_pte_table_ == &table) last_pte_table_ = nullptr;
  if (last_pmd_table_ == &table) last_pmd_table_ = nullptr;
  recycle(&table);
  return page;
}

void PageTableTree::deposit(Table& pmd, VirtAddr at, TablePage* page) {
  pmd.deposit[shapes_[pmd.level].index(at)] = page;
  bytes_ += shapes_[pte_level()].counted_bytes();
}

TablePage* PageTableTree::withdraw(Table& pmd, VirtAddr at) {
  TablePage*& slot = pmd.deposit[shapes_[pmd.level].index(at)];
  TablePage* page = slot;
  FAULTLINE_CHECK(page != nullptr);
  slot = nullptr;
  bytes_ -= shapes_[pte_level()].counted_bytes();
  return page;
}

void PageTableTree::move_pmd(Table& from, VirtAddr old_at, Table& to, VirtAddr new_at) {
  const Pte entry = get(from, old_at);
  FAULTLINE_CHECK(!entry.none() && get(to, new_at).none());
  if (entry.is_table()) {
    Table* table = to_table(entry);
    table->parent = &to;
    table->start = VirtAddr{new_at.v & ~(shapes_[pmd_level()].entry_bytes() - 1)};
    last_pte_table_ = nullptr;
  } else if (from.deposit != nullptr) {
    std::swap(from.deposit[shapes_[from.level].index(old_at)],
              to.deposit[shapes_[to.level].index(new_at)]);
  }
  set(to, new_at, entry);
  set(from, old_at, Pte{});
}

}  // namespace faultline::kernel
