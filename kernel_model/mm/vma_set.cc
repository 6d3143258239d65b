// SPDX-License-Identifier: Apache-2.0
//
// The ordered set of VMAs: see vma_set.h.
#include "kernel_model/mm/vma_set.h"

#include <algorithm>

#include "sim/check.h"

namespace faultline::kernel {

namespace {
constexpr std::size_t kChunk = 32;  // VMAs allocated from the host at once
}

VmaSet::~VmaSet() = default;

// Calls come in groups around one VMA: the last answer, its neighbour above, or the gap
// below it.
Vma* VmaSet::find(VirtAddr at) const {
  if (last_hit_ != nullptr) {
    if (at < last_hit_->end) {
      if (last_hit_->start <= at) return last_hit_;
      if (last_hit_->prev_ == nullptr || last_hit_->prev_->end <= at) return last_hit_;
    } else if (Vma* const above = last_hit_->next_; above == nullptr || at < above->end) {
      return above;
    }
  }
  Vma* best = nullptr;
  for (Vma* node = root_; node != nullptr;) {
    if (node->end > at) {
      best = node;
      if (node->start <= at) break;
      node = node->left_;
    } else {
      node = node->right_;
    }
  }
  if (best != nullptr) last_hit_ = best;
  return best;
}

Vma* VmaSet::last_below(VirtAddr at) const {
  if (at.v == 0) return nullptr;
  Vma* const vma = find(at - 1);
  if (vma == nullptr) return last_;
  return vma->start < at ? vma : vma->prev_;
}

Vma& VmaSet::make() {
  if (free_ == nullptr) {
    chunks_.push_back(std::make_unique<Vma[]>(kChunk));
    for (std::size_t i = kChunk; i-- > 0;) {
      chunks_.back()[i].next_ = free_;
      free_ = &chunks_.back()[i];
    }
  }
  Vma& vma = *free_;
  free_ = vma.next_;
  vma.next_ = nullptr;
  return vma;
}

void VmaSet::free(Vma& vma) {
  vma.start = vma.end = VirtAddr{};
  vma.vm_flags = vma.vm_pgoff = 0;
  vma.anon_vma = {};
  vma.anon_vma_chain = 0;
  vma.anonymous = true;
  vma.name.clear();
  vma.anon_name.clear();
  vma.hugetlb.reset();
  vma.file.reset();
  vma.lock = PerVmaLock{};
  vma.prev_ = nullptr;
  vma.next_ = free_;
  free_ = &vma;
}

std::uint64_t VmaSet::start_gap(const Vma& vma) const {
  if ((vma.vm_flags & VM_GROWSDOWN) == 0) return vma.start.v;
  return vma.start.v > stack_guard_gap_ ? vma.start.v - stack_guard_gap_ : 0;
}

void VmaSet::propagate(Vma* node) {
  for (; node != nullptr; node = node->parent_) {
    const std::uint64_t largest =
        std::max({node->gap_, subtree_gap(node->left_), subtree_gap(node->right_)});
    if (node->max_gap_ == largest) break;
    node->max_gap_ = largest;
  }
}

std::uint64_t VmaSet::gap_below(const Vma& vma) const {
  const std::uint64_t below = vma.prev_ != nullptr ? vma.prev_->end.v : 0;
  const std::uint64_t begin = start_gap(vma);
  return begin > below ? begin - below : 0;
}

void VmaSet::update_gap(Vma& vma) {
  vma.gap_ = gap_below(vma);
  propagate(&vma);
}

void VmaSet::rotate_up(Vma& node) {
  Vma& parent = *node.parent_;
  Vma* const grand = parent.parent_;
  if (parent.left_ == &node) {
    parent.left_ = node.right_;
    if (node.right_ != nullptr) node.right_->parent_ = &parent;
    node.right_ = &parent;
  } else {
    parent.right_ = node.left_;
    if (node.left_ != nullptr) node.left_->parent_ = &parent;
    node.left_ = &parent;
  }
  parent.parent_ = &node;
  node.parent_ = grand;
  if (grand == nullptr) {
    root_ = &node;
  } else {
    (grand->left_ == &parent ? grand->left_ : grand->right_) = &node;
  }
  node.max_gap_ = parent.max_gap_;
  parent.max_gap_ =
      std::max({parent.gap_, subtree_gap(parent.left_), subtree_gap(parent.right_)});
}

void VmaSet::insert(Vma& vma) {
  FAULTLINE_CHECK(vma.start < vma.end);
  Vma* const above = find(vma.start);
  FAULTLINE_CHECK(above == nullptr || vma.end <= above->start);
  vma.next_ = above;
  vma.prev_ = above != nullptr ? above->prev_ : last_;
  (vma.prev_ != nullptr ? vma.prev_->next_ : first_) = &vma;
  (above != nullptr ? above->prev_ : last_) = &vma;

  // In address order the new node is either its successor's left child or its predecessor's
  // right.
  vma.left_ = vma.right_ = nullptr;
  vma.gap_ = vma.max_gap_ = gap_below(vma);
  if (above != nullptr && above->left_ == nullptr) {
    vma.parent_ = above;
    above->left_ = &vma;
  } else if (vma.prev_ != nullptr) {
    vma.parent_ = vma.prev_;
    vma.prev_->right_ = &vma;
  } else {
    vma.parent_ = nullptr;
    root_ = &vma;
  }
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  vma.priority_ = random_;
  // Both gaps first: then one way up does for both where one node is the other's parent.
  if (above != nullptr) above->gap_ = gap_below(*above);
  propagate(vma.parent_);
  if (above != nullptr && above != vma.parent_) propagate(above);
  while (vma.parent_ != nullptr && vma.parent_->priority_ < vma.priority_) rotate_up(vma);
  ++size_;
  last_hit_ = &vma;
}

void VmaSet::remove(Vma& vma) {
  // Down to where it has one child at most, then out.
  while (vma.left_ != nullptr && vma.right_ != nullptr)
    rotate_up(vma.left_->priority_ > vma.right_->priority_ ? *vma.left_ : *vma.right_);
  Vma* const above = vma.next_;
  (vma.prev_ != nullptr ? vma.prev_->next_ : first_) = above;
  (above != nullptr ? above->prev_ : last_) = vma.prev_;
  if (above != nullptr) above->gap_ = gap_below(*above);
  Vma* const child = vma.left_ != nullptr ? vma.left_ : vma.right_;
  Vma* const parent = vma.parent_;
  if (child != nullptr) child->parent_ = parent;
  if (parent == nullptr) {
    root_ = child;
  } else {
    (parent->left_ == &vma ? parent->left_ : parent->right_) = child;
    propagate(parent);
  }
  if (above != nullptr && above != parent) propagate(above);
  --size_;
  if (last_hit_ == &vma) last_hit_ = nullptr;
  vma.parent_ = vma.left_ = vma.right_ = vma.prev_ = vma.next_ = nullptr;
}

void VmaSet::set_range(Vma& vma, Range range) {
  FAULTLINE_CHECK(!range.empty());
  FAULTLINE_CHECK(vma.prev_ == nullptr || vma.prev_->end <= range.start);
  FAULTLINE_CHECK(vma.next_ == nullptr || range.end <= vma.next_->start);
  vma.start = range.start;
  vma.end = range.end;
  update_gap(vma);
  if (vma.next_ != nullptr) update_gap(*vma.next_);
}

std::optional<VirtAddr> VmaSet::highest_gap(std::uint64_t length, Range within) const {
  if (within.end.v < within.start.v + length) return std::nullopt;
  // The gap above the last VMA.
  const std::uint64_t top = last_ != nullptr ? last_->end.v : 0;
  if (std::max(top, within.start.v) + length <= within.end.v) return within.end - length;

  // Right to left, entering only subtrees that have a gap large enough.
  const Vma* node = root_;
  if (subtree_gap(node) < length) return std::nullopt;
  bool from_right = false;  // the right subtree of `node` is done
  while (node != nullptr) {
    const bool right_useful = node->start < within.end;
    if (!from_right && right_useful && subtree_gap(node->right_) >= length) {
      node = node->right_;
      continue;
    }
    if (node->gap_ >= length) {
      const std::uint64_t begin = node->prev_ != nullptr ? node->prev_->end.v : 0;
      const std::uint64_t low = std::max(begin, within.start.v);
      const std::uint64_t high = std::min(start_gap(*node), within.end.v);
      if (high >= low && high - low >= length) return VirtAddr{high - length};
      if (begin <= within.start.v) return std::nullopt;  // all others lie lower
    }
    if (subtree_gap(node->left_) >= length) {
      node = node->left_;
      from_right = false;
      continue;
    }
    // Up to the first ancestor that we come to from its right.
    const Vma* child = node;
    node = node->parent_;
    while (node != nullptr && node->left_ == child) {
      child = node;
      node = node->parent_;
    }
    from_right = true;
  }
  return std::nullopt;
}

std::optional<VirtAddr> VmaSet::lowest_gap(std::uint64_t length, Range within) const {
  if (within.end.v < within.start.v + length) return std::nullopt;
  const Vma* node = subtree_gap(root_) >= length ? root_ : nullptr;
  bool from_left = false;  // the left subtree of `node` is done
  while (node != nullptr) {
    const bool left_useful = node->start > within.start;
    if (!from_left && left_useful && subtree_gap(node->left_) >= length) {
      node = node->left_;
      continue;
    }
    if (node->gap_ >= length) {
      const std::uint64_t begin = node->prev_ != nullptr ? node->prev_->end.v : 0;
      const std::uint64_t low = std::max(begin, within.start.v);
      const std::uint64_t high = std::min(start_gap(*node), within.end.v);
      if (high >= low && high - low >= length) return VirtAddr{low};
      if (begin >= within.end.v) return std::nullopt;  // all others lie higher
    }
    if (subtree_gap(node->right_) >= length) {
      node = node->right_;
      from_left = false;
      continue;
    }
    const Vma* child = node;
    node = node->parent_;
    while (node != nullptr && node->right_ == child) {
      child = node;
      node = node->parent_;
    }
    from_left = true;
  }
  const std::uint64_t low = std::max(last_ != nullptr ? last_->end.v : 0, within.start.v);
  if (low + length <= within.end.v) return VirtAddr{low};
  return std::nullopt;
}

void VmaSet::check() const {
  std::size_t count = 0;
  const Vma* before = nullptr;
  for (const Vma* vma = first_; vma != nullptr; before = vma, vma = vma->next_, ++count) {
    FAULTLINE_CHECK(vma->start < vma->end);
    FAULTLINE_CHECK(vma->prev_ == before);
    if (before != nullptr) FAULTLINE_CHECK(before->end <= vma->start);
    const std::uint64_t below = before != nullptr ? before->end.v : 0;
    const std::uint64_t begin = start_gap(*vma);
    FAULTLINE_CHECK_EQ(vma->gap_, begin > below ? begin - below : 0);
    FAULTLINE_CHECK_EQ(vma->max_gap_, std::max({vma->gap_, subtree_gap(vma->left_),
                                                subtree_gap(vma->right_)}));
    if (vma->parent_ != nullptr) FAULTLINE_CHECK(vma->parent_->priority_ >= vma->priority_);
    for (const Vma* child : {vma->left_, vma->right_})
      if (child != nullptr) FAULTLINE_CHECK(child->parent_ == vma);
    if (vma->left_ != nullptr) FAULTLINE_CHECK(vma->left_->start < vma->start);
    if (vma->right_ != nullptr) FAULTLINE_CHECK(vma->right_->start > vma->start);
  }
  FAULTLINE_CHECK(last_ == before);
  FAULTLINE_CHECK_EQ(count, size_);
}

}  // namespace faultline::kernel
