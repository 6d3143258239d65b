// SPDX-License-Identifier: Apache-2.0
//
// Pools of huge pages: how they grow and shrink, who gets their pages.
#include <algorithm>
#include <bit>

#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/proc/vmstat.h"
#include "sim/check.h"

namespace faultline::kernel {

HugetlbPools::HugetlbPools(Kernel& kernel) : kernel_(kernel) {
  const arch::Profile& profile = kernel.profile();
  for (const std::uint64_t size : profile.geometry.hugetlb_sizes) {
    HugetlbPool pool;
    pool.size = size;
    pool.order =
        static_cast<unsigned>(std::countr_zero(size)) - profile.geometry.page_shift;
    pool.free_of_node.resize(profile.nodes.size());
    pool.surplus_of_node.resize(profile.nodes.size());
    pools_.push_back(std::move(pool));
  }
  // hugetlb_init(): num_fault_mutexes.
  mutexes_.resize(std::bit_ceil(std::size_t{8} * profile.cpus));
}

HugetlbPools::~HugetlbPools() = default;

HugetlbPool* HugetlbPools::hstate_sizelog(unsigned log2_size) {
  if (log2_size == 0) return default_pool();
  const auto it =
      std::ranges::find(pools_, std::uint64_t{1} << log2_size, &HugetlbPool::size);
  return it == pools_.end() ? nullptr : &*it;
}

bool HugetlbPools::alloc_fresh_on(HugetlbPool& pool, int node) {
  const auto pfn = kernel_.phys().alloc_pages({.order = pool.order,
                                               .preferred_node = node,
                                               .this_node_only = true,
                                               .reclaim = GfpReclaim::kDirect,
                                               .type = MigrateType::kMovable},
                                              0);
  if (!pfn) return false;
  ++kernel_.vmstat().htlb_buddy_alloc_success;
  pool.free_of_node[static_cast<std::size_t>(node)].push_back(*pfn);
  ++pool.nr_huge_pages;
  ++pool.free;
  return true;
}

// alloc_pool_huge_page(): from one node after the other.
bool HugetlbPools::alloc_fresh(HugetlbPool& pool) {
  for (std::size_t tries = 0; tries < pool.free_of_node.size(); ++tries) {
    const auto node = static_cast<int>(pool.next_node);
    pool.next_node = (pool.next_node + 1) % static_cast<unsigned>(pool.free_of_node.size());
    if (alloc_fresh_on(pool, node)) return true;
  }
  ++kernel_.vmstat().htlb_buddy_alloc_fail;
  return false;
}

void HugetlbPools::add_on_node(HugetlbPool& pool, int node, std::uint64_t count) {
  if (pool.order > kernel_.profile().geometry.max_order) return;
  while (count > 0 && alloc_fresh_on(pool, node)) --count;
  if (count > 0) ++kernel_.vmstat().htlb_buddy_alloc_fail;
}

void HugetlbPools::boot() {
  const KernelConfig& config = kernel_.config();
  if (HugetlbPool* pool = default_pool()) {
    pool->nr_overcommit = config.nr_overcommit_hugepages;
    if (config.nr_hugepages > 0) set_max_huge_pages(*pool, config.nr_hugepages);
  }
  for (const HugetlbSetting& setting : config.hugetlb_pools) {
    const auto it = std::ranges::find(pools_, setting.size, &HugetlbPool::size);
    FAULTLINE_CHECK(it != pools_.end());  // the settings were checked for it
    it->nr_overcommit = setting.overcommit;
    if (setting.pages_of_node.empty()) set_max_huge_pages(*it, setting.pages);
    for (std::size_t n = 0; n < setting.pages_of_node.size(); ++n)
      add_on_node(*it, static_cast<int>(n), setting.pages_of_node[n]);
  }
}

// alloc_surplus_huge_page(): straight from the buddy lists, within nr_overcommit.
bool HugetlbPools::alloc_surplus(HugetlbPool& pool, int node) {
  if (pool.order > kernel_.profile().geometry.max_order) return false;
  if (pool.surplus >= pool.nr_overcommit) return false;
  const auto pfn =
      kernel_.phys().alloc_pages({.order = pool.order, .preferred_node = node}, 0);
  if (!pfn) {
    ++kernel_.vmstat().htlb_buddy_alloc_fail;
    return false;
  }
  ++kernel_.vmstat().htlb_buddy_alloc_success;
  const auto from = static_cast<std::size_t>(kernel_.phys().node_of(*pfn));
  pool.free_of_node[from].push_back(*pfn);
  ++pool.surplus_of_node[from];
  ++pool.surplus;
  ++pool.nr_huge_pages;
  ++pool.free;
  return true;
}

void HugetlbPools::to_buddy(HugetlbPool& pool, Pfn head) {
  kernel_.phys().free_pages(head, pool.order, 0);
  --pool.nr_huge_pages;
}

// A free page leaves the pool, from one node after the other.
bool HugetlbPools::remove_pool_huge_page(HugetlbPool& pool, bool surplus) {
  for (std::size_t tries = 0; tries < pool.free_of_node.size(); ++tries) {
    const std::size_t node = pool.next_node;
    pool.next_node = (pool.next_node + 1) % static_cast<unsigned>(pool.free_of_node.size());
    if (pool.free_of_node[node].empty() || (surplus && pool.surplus_of_node[node] == 0))
      continue;
    const Pfn head = pool.free_of_node[node].back();
    pool.free_of_node[node].pop_back();
    --pool.free;
    if (surplus) {
      --pool.surplus;
      --pool.surplus_of_node[node];
    }
    to_buddy(pool, head);
    return true;
  }
  return false;
}

void HugetlbPools::set_max_huge_pages(HugetlbPool& pool, std::uint64_t count) {
  const auto persistent = [&] { return pool.nr_huge_pages - pool.surplus; };
  const auto shift_surplus = [&](bool up) {
    for (std::uint64_t& of_node : pool.surplus_of_node) {
      if (!up && of_node == 0) continue;
      of_node += up ? 1 : ~std::uint64_t{0};
      pool.surplus += up ? 1 : ~std::uint64_t{0};
      return;
    }
  };
  while (pool.surplus > 0 && count > persistent()) shift_surplus(false);
  const bool gigantic = pool.order > kernel_.profile().geometry.max_order;
  while (!gigantic && count > persistent() && alloc_fresh(pool)) {
  }
  const std::uint64_t least = std::max(count, pool.resv + pool.nr_huge_pages - pool.free);
  while (least < persistent() && remove_pool_huge_page(pool, false)) {
  }
  while (count < persistent()) shift_surplus(true);
}

// gather_surplus_pages(): all that is missing, or nothing.
bool HugetlbPools::reserve(HugetlbPool& pool, std::uint64_t pages) {
  std::uint64_t made = 0;
  while (pool.free < pool.resv + pages) {
    if (!alloc_surplus(pool, 0)) {
      while (made-- > 0) static_cast<void>(remove_pool_huge_page(pool, true));
      return false;
    }
    ++made;
  }
  pool.resv += pages;
  return true;
}

// return_unused_surplus_pages().
void HugetlbPools::unreserve(HugetlbPool& pool, std::uint64_t pages) {
  FAULTLINE_CHECK_GE(pool.resv, pages);
  pool.resv -= pages;
  for (std::uint64_t n = std::min(pages, pool.surplus); n > 0; --n)
    if (!remove_pool_huge_page(pool, true)) return;
}

MaybePfn HugetlbPools::alloc(HugetlbPool& pool, int node, bool reserved) {
  if (!reserved && pool.free <= pool.resv && !alloc_surplus(pool, node))
    return std::nullopt;
  FAULTLINE_CHECK_GT(pool.free, std::uint64_t{0});
  const std::size_t nodes = pool.free_of_node.size();
  for (std::size_t i = 0; i < nodes; ++i) {
    auto& list = pool.free_of_node[(static_cast<std::size_t>(node) + i) % nodes];
    if (list.empty()) continue;
    const Pfn head = list.back();
    list.pop_back();
    --pool.free;
    if (reserved) --pool.resv;
    Page& page = kernel_.phys().page(head);
    page.refcount = 1;
    page.mapcount = 1;
    return head;
  }
  return std::nullopt;
}

// free_huge_page(): a surplus page goes back to where it came from.
void HugetlbPools::free(HugetlbPool& pool, Pfn head) {
  const auto node = static_cast<std::size_t>(kernel_.phys().node_of(head));
  if (pool.surplus_of_node[node] > 0) {
    --pool.surplus_of_node[node];
    --pool.surplus;
    to_buddy(pool, head);
    return;
  }
  pool.free_of_node[node].push_back(head);
  ++pool.free;
}

Mutex& HugetlbPools::fault_mutex(const HugetlbMapping& mapping, std::uint64_t index) {
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // Model: stands for jhash2()
  const std::uint64_t hash = (mapping.id + index * 0x100000001b3) * kSpread;
  auto& mutex = mutexes_[(hash >> 32) & (mutexes_.size() - 1)];
  if (!mutex)
    mutex = std::make_unique<Mutex>(
        kernel_.engine(), kernel_.engine().locks().of("hugetlb_fault_mutex_table"),
        kernel_.lock_costs());
  return *mutex;
}

}  // namespace faultline::kernel
