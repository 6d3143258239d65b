// SPDX-License-Identifier: Apache-2.0
//
// The VMAs of a process, ordered by address, with the free gaps between them.
//
// The idea: a treap (a search tree that random priorities keep balanced) whose nodes know
// the largest free gap of their subtree, so that finding a VMA, and finding the highest or
// lowest gap that is large enough, take a walk from the root.  VMAs never move in memory
// while they live; freed ones are kept for reuse.
//
// Stands for: mm_rb with rb_subtree_gap (v4.15-6.0) and the maple tree (v6.1 and later),
// which give the same answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernel_model/mm/vma.h"

namespace faultline::kernel {

class VmaSet {
 public:
  // `stack_guard_gap`: free bytes below a VM_GROWSDOWN mapping that don't count as free.
  explicit VmaSet(std::uint64_t stack_guard_gap) : stack_guard_gap_(stack_guard_gap) {}
  ~VmaSet();
  VmaSet(const VmaSet&) = delete;
  VmaSet& operator=(const VmaSet&) = delete;

  class Iterator {
   public:
    explicit Iterator(Vma* at) : at_(at) {}
    Vma& operator*() const { return *at_; }
    Iterator& operator++() {
      at_ = at_->next();
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    Vma* at_;
  };
  [[nodiscard]] Iterator begin() const { return Iterator(first_); }
  [[nodiscard]] Iterator end() const { return Iterator(nullptr); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] Vma* first() const { return first_; }
  [[nodiscard]] Vma* last() const { return last_; }

  // The first VMA that ends above `at` (find_vma); null if none.
  [[nodiscard]] Vma* find(VirtAddr at) const;
  // The one that holds `at`; null if none.
  [[nodiscard]] Vma* at(VirtAddr at) const {
    Vma* vma = find(at);
    return vma != nullptr && vma->start <= at ? vma : nullptr;
  }
  // The last VMA that starts below `at`; null if none.
  [[nodiscard]] Vma* last_below(VirtAddr at) const;

  // A blank VMA outside of the set.
  [[nodiscard]] Vma& make();
  // Puts a made VMA in; its range is free.
  void insert(Vma& vma);
  // Takes it out; it stays alive until `free`.
  void remove(Vma& vma);
  void free(Vma& vma);
  // Moves the ends of a VMA that is in the set; it stays between its neighbours.  Flags
  // that decide its guard gap must not change.
  void set_range(Vma& vma, Range range);

  // Lowest and highest start of a free range of `length` bytes within `within`; guard gaps
  // are respected.  No answer if there is none.
  [[nodiscard]] std::optional<VirtAddr> lowest_gap(std::uint64_t length,
                                                   Range within) const;
  [[nodiscard]] std::optional<VirtAddr> highest_gap(std::uint64_t length,
                                                    Range within) const;

  // vm_start_gap(): where the VMA begins for placement.
  [[nodiscard]] std::uint64_t start_gap(const Vma& vma) const;
  // Aborts unless tree, list and gaps agree.
  void check() const;

 private:
  [[nodiscard]] std::uint64_t gap_below(const Vma& vma) const;
  void update_gap(Vma& vma);
  void propagate(Vma* node);
  void rotate_up(Vma& node);
  static std::uint64_t subtree_gap(const Vma* node) { return node ? node->max_gap_ : 0; }

  std::uint64_t stack_guard_gap_;
  Vma* root_ = nullptr;
  Vma *first_ = nullptr, *last_ = nullptr;
  std::size_t size_ = 0;
  std::uint32_t random_ = 0x9e3779b9;  // priorities: xorshift
  mutable Vma* last_hit_ = nullptr;
  std::vector<std::unique_ptr<Vma[]>> chunks_;
  Vma* free_ = nullptr;  // linked by next_
};

}  // namespace faultline::kernel
