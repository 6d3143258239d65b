// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/folio.h"

#include <algorithm>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/page_table_tree.h"
#include "kernel_model/mm/rmap.h"
#include "kernel_model/mm/split_huge_page.h"

namespace faultline::kernel {
namespace {

// 6.15: each large folio knows which address spaces map it.
constexpr unsigned kMmIds = 6015;

bool maps_piece_of(Kernel& kernel, Mm& mm, Range range, Pfn head) {
  const std::uint64_t page = mm.pages().geometry().page_size();
  for (VirtAddr at = range.start; at < range.end; at = at + page) {
    const Pte entry = mm.pages().tree().leaf_at(at);
    if (entry.maps_anon() && compound_head(kernel, entry.pfn()) == head) return true;
  }
  return false;
}

}  // namespace

std::uint64_t folio_pte_batch(Kernel& kernel, const Table& table, std::uint64_t index,
                              std::uint64_t to) {
  const Pfn first = table.entry[index].pfn();
  const Pfn head = compound_head(kernel, first);
  const std::uint64_t left =
      head.v + (std::uint64_t{1} << compound_order(kernel, head)) - first.v;
  const std::uint64_t most = std::min(left, to - index);
  std::uint64_t count = 1;
  while (count < most && table.entry[index + count].maps_anon() &&
         table.entry[index + count].pfn().v == first.v + count)
    ++count;
  return count;
}

bool folio_maybe_mapped_shared(Kernel& kernel, Pfn head) {
  if (max_mapcount(kernel, head) > 1) return true;
  if (kernel.version() < kMmIds || total_mapcount(kernel, head) <= 1) return false;
  const Mm* first = nullptr;
  bool shared = false;
  for_each_place_of(kernel, head, [&](Mm& mm, Vma&, Range range) {
    if (shared || &mm == first || !maps_piece_of(kernel, mm, range, head)) return;
    shared = first != nullptr;
    first = &mm;
  });
  return shared;
}

}  // namespace faultline::kernel
