// SPDX-License-Identifier: Apache-2.0
//
// The lists that reclaim takes pages from, and the reverse map of the pages on them.
//
// A page that joins a list costs one store as long as nobody reclaims: it notes when it
// joined.  The first reclaim makes real lists of these notes, in their order, and from then
// on they are kept as the kernel keeps them.  So a machine with memory to spare pays
// nothing for them.
//
// Stands for: struct lruvec, lru_add_fn(), isolate_lru_pages() (mm/swap.c, mm/vmscan.c,
// include/linux/mm_inline.h), page->mapping and page->index, v4.15-6.18.  Model: no
// multi-gen LRU; no batches of pages on their way to a list, but for lazyfree.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernel_model/phys/lazy_memory.h"
#include "kernel_model/phys/page.h"
#include "kernel_model/types.h"

namespace faultline::kernel {

class Kernel;
class Mm;
struct Vma;

enum class LruList : std::uint8_t {
  kInactiveAnon,
  kActiveAnon,
  kInactiveFile,
  kActiveFile,
  kUnevictable
};
inline constexpr std::size_t kLruLists = 5;

class Lru {
 public:
  explicit Lru(Kernel& kernel);
  ~Lru();
  Lru(const Lru&) = delete;
  Lru& operator=(const Lru&) = delete;

  // A page (or compound head) with its flags set goes to the head of its list.
  void add(Page& page, Pfn head) {
    page.link = ++stamp_;
    if (lists_kept_ || stamp_ == UINT32_MAX) [[unlikely]]
      add_to_list(page, head);
  }
  // The page leaves: it is freed, or somebody has isolated it.
  void del(Page& page, Pfn head) {
    if (lists_kept_) [[unlikely]]
      del_from_list(page, head);
  }
  // Its flags say another list now.
  void move(Page& page, Pfn head) {
    del(page, head);
    add(page, head);
  }
  // A compound page falls apart: its head is a single page now, and each other piece that
  // is mapped joins behind the one before it (false: the head was on no list).
  void split_head(Pfn head);
  bool add_piece(const Page& page, Pfn piece, Pfn behind);
  // Where a page lies in its mapping or file; nothing to do before the first reclaim.
  void note_anon_index(Pfn page, std::uint64_t index) {
    if (lists_kept_) [[unlikely]]
      nodes_[page.v].index = index;
  }
  void note_file_index(Pfn page, std::uint32_t file, std::uint64_t index) {
    if (lists_kept_) [[unlikely]]
      nodes_[page.v].index = kOfFile | std::uint64_t{file} << kFileShift | index;
  }
  void copy_index(Pfn from, Pfn to, std::uint64_t offset) {
    if (lists_kept_) [[unlikely]]
      nodes_[to.v].index = nodes_[from.v].index + offset;
  }

  // --- for reclaim, compaction and the views
  [[nodiscard]] bool lists_kept() const { return lists_kept_; }
  void start();  // makes the lists
  // Base pages on a list.
  [[nodiscard]] std::uint64_t size(int node, LruList list) const {
    return lists_[static_cast<std::size_t>(node) * kLruLists +
                  static_cast<std::size_t>(list)]
        .pages;
  }
  // The oldest page of the list; false: it is empty.
  [[nodiscard]] bool tail(int node, LruList list, Pfn& page) const;
  // Off its list, with a reference; false if it is on none.
  bool isolate(Pfn head);
  // At the old end of its list, to be taken next.
  void add_tail(Page& page, Pfn head);
  // Back on the list that its flags say, the reference goes: it may have been the last.
  void putback(Pfn head, int cpu);
  // PG_referenced.
  [[nodiscard]] bool test_clear_referenced(Pfn head) {
    const bool was = nodes_[head.v].referenced != 0;
    nodes_[head.v].referenced = 0;
    return was;
  }
  void set_referenced(Pfn head) { nodes_[head.v].referenced = 1; }
  // rmap_walk() of a base page: each place where it may be mapped.  Stops if f says false.
  void for_each_place(Pfn page,
                      const std::function<bool(Mm&, const Vma&, VirtAddr)>& f) const;
  // Undoes the wanted mappings of a base page one after the other, until undo says false.
  // True: nobody maps it any more.
  bool undo_places(Pfn page, const std::function<bool(Mm&, const Vma&, VirtAddr)>& wanted,
                   const std::function<bool(Mm&, VirtAddr)>& undo) const;
  // Of a page of a file: its file's number and index there.
  [[nodiscard]] std::uint32_t file_of(Pfn page) const;
  [[nodiscard]] std::uint64_t index_of(Pfn page) const;
  // Aborts if the lists aren't sound.
  void check() const;

 private:
  static constexpr std::uint64_t kOfFile = std::uint64_t{1} << 63;
  static constexpr unsigned kFileShift = 40;
  struct Node {
    std::uint32_t prev, next;  // towards the head, towards the tail
    std::uint64_t index;       // kOfFile, file, index; or index in the anonymous mapping
    std::uint32_t pages;
    std::uint8_t list, on_list, referenced, node;
  };
  struct List {
    std::uint32_t head = UINT32_MAX, tail = UINT32_MAX;
    std::uint64_t pages = 0;
  };

  void add_to_list(Page& page, Pfn head);
  void del_from_list(const Page& page, Pfn head);
  [[nodiscard]] List& list_at(const Node& n) {
    return lists_[std::size_t{n.node} * kLruLists + n.list];
  }
  List& enter(const Page& page, Pfn head);
  void link(const Page& page, Pfn head);
  struct Found {
    std::uint32_t stamp;
    Pfn head;
    bool operator<(const Found& other) const {
      return stamp != other.stamp ? stamp < other.stamp : head < other.head;
    }
  };
  void collect_mapped(std::vector<Found>& found);
  void collect_cached(std::vector<Found>& found);
  bool places_in(Mm& mm, Pfn page, std::uint64_t index, std::int32_t& left,
                 const std::function<bool(Mm&, const Vma&, VirtAddr)>& f) const;

  Kernel& kernel_;
  std::uint32_t stamp_ = 0;
  bool lists_kept_ = false;
  LazyMemory memory_;
  Node* nodes_ = nullptr;               // of each frame
  std::vector<List> lists_;             // [node][list]
  mutable std::size_t last_found_ = 0;  // whose page the last walk found
};

}  // namespace faultline::kernel
