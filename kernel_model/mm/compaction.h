// SPDX-License-Identifier: Apache-2.0
//
// Compaction: movable pages are moved from the low end of a zone to free pages at its high
// end, until a free block of the wanted order has come together.
//
// Two scanners walk towards each other; where they meet the zone is done.  A zone where it
// has failed is left alone for a growing number of attempts.
//
// Stands for: mm/compaction.c, the base-page part of mm/migrate.c (v4.15-6.18).  Model:
// only base pages that are mapped at most once move; no skip bits for pageblocks; the
// scanners start at the zone's ends each time; a zone is compacted by one task at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/types.h"
#include "sim/task.h"

namespace faultline::kernel {

class Kernel;
class Mm;

enum class CompactResult : std::uint8_t { kSkipped, kDeferred, kComplete, kSuccess };
// kAsync never waits and doesn't make the zone deferred.
enum class CompactMode : std::uint8_t { kAsync, kSyncLight };

class Compaction {
 public:
  explicit Compaction(Kernel& kernel);

  // try_to_compact_pages(): of the nodes that the request may use.
  CompactResult try_to_compact(Task& task, const AllocRequest& request, CompactMode mode);
  // kcompactd: for blocks of the order, on this node.
  void kcompactd_do_work(Task& task, int node, unsigned order);
  // An allocation of the order has come off: compaction isn't deferred any more.
  void defer_reset(int node, unsigned order);
  // fragmentation_index(): -1000 if a block is there; towards 0, memory lacks; towards
  // 1000, it is fragmented.
  [[nodiscard]] int fragmentation_index(int node, unsigned order) const;

 private:
  struct Zone {
    unsigned considered = 0, defer_shift = 0, order_failed = Buddy::kMaxOrders;
    bool busy = false;
    std::vector<Pfn> free;                  // isolated, as targets
    std::vector<Pfn> to_move;               // isolated from their list
    std::uint32_t migrate = 0, target = 0;  // the scanners
  };
  [[nodiscard]] bool deferred(Zone& zone, unsigned order) const;
  static void defer(Zone& zone, unsigned order);
  [[nodiscard]] bool suitable(int node, unsigned order) const;
  CompactResult compact_zone(Task& task, int node, unsigned order, CompactMode mode);
  void isolate_migratepages(Task& task, int node, Zone& zone, CompactMode mode);
  bool isolate_freepages(Task& task, int node, Zone& zone);
  void migrate_pages(Task& task, int node, Zone& zone);
  bool migrate(Task& task, Pfn from, Pfn to);
  bool move_mapping(Task& task, Pfn from, Pfn to);
  [[nodiscard]] bool held_by_others(Pfn page) const;
  void become(Pfn from, Pfn to);
  void give_back(Zone& zone);

  Kernel& kernel_;
  std::vector<Zone> zones_;
};

}  // namespace faultline::kernel
