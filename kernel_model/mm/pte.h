// SPDX-License-Identifier: Apache-2.0
//
// One page-table entry in eight bytes, for every level.
//
// An entry is empty (0), a pointer to the next table (even), or a leaf (odd): a base page
// at the PTE level, a huge page at the PMD level.  A leaf is either present, with the bits
// that hardware and kernel keep, or a mark that is not (swap, guard, purged, hugetlb).
//
// Stands for: pte_t and pmd_t of every architecture.  Model: dirty and young are always
// kept by hardware; no soft-dirty, no uffd bits.
#pragma once

#include <cstdint>

#include "kernel_model/types.h"

namespace faultline::kernel {

class Pte {
 public:
  enum Bits : std::uint64_t {
    kLeaf = 1 << 0,
    kPresent = 1 << 1,
    kUser = 1 << 2,  // readable from user space; clear under PROT_NONE
    kWrite = 1 << 3,
    kDirty = 1 << 4,
    kYoung = 1 << 5,
    kZero = 1 << 6,   // the (huge) zero page: not in RSS, never freed through a mapping
    kFile = 1 << 7,   // page-cache page of a private file mapping
    kGuard = 1 << 8,  // PTE_MARKER_GUARD
    kSwap = 1 << 9,
    kHugetlb = 1 << 10,
    kVrange = 1 << 11,  // the mark of a page that was volatile and is purged
  };

  constexpr Pte() = default;
  constexpr explicit Pte(std::uint64_t raw) : raw_(raw) {}
  static constexpr Pte leaf(Pfn pfn, std::uint64_t bits) {
    return Pte{(std::uint64_t{pfn.v} << kPfnShift) | bits | kLeaf};
  }

  [[nodiscard]] constexpr std::uint64_t raw() const { return raw_; }
  [[nodiscard]] constexpr bool none() const { return raw_ == 0; }
  [[nodiscard]] constexpr bool is_leaf() const { return (raw_ & kLeaf) != 0; }
  [[nodiscard]] constexpr bool is_table() const { return raw_ != 0 && (raw_ & kLeaf) == 0; }
  [[nodiscard]] constexpr bool has(Bits bit) const { return (raw_ & bit) != 0; }
  [[nodiscard]] constexpr bool present() const { return has(kPresent); }
  [[nodiscard]] constexpr bool zero_page() const { return has(kZero); }
  // An anonymous page that counts in RSS and whose struct page counts this mapping.
  [[nodiscard]] constexpr bool maps_anon() const {
    return (raw_ & (kPresent | kZero | kFile | kHugetlb)) == kPresent;
  }
  // A page of the page cache, as maps_anon(); without a frame: the program's own text.
  [[nodiscard]] constexpr bool maps_file() const {
    return (raw_ & (kPresent | kFile | kHugetlb)) == (kPresent | kFile) && pfn().v != 0;
  }
  [[nodiscard]] constexpr Pfn pfn() const {
    return {static_cast<std::uint32_t>(raw_ >> kPfnShift)};
  }
  [[nodiscard]] constexpr Pte with(std::uint64_t bits) const { return Pte{raw_ | bits}; }
  [[nodiscard]] constexpr Pte without(std::uint64_t bits) const {
    return Pte{raw_ & ~bits};
  }
  [[nodiscard]] constexpr Pte with_pfn(Pfn pfn) const {
    return Pte{(raw_ & ((std::uint64_t{1} << kPfnShift) - 1)) |
               (std::uint64_t{pfn.v} << kPfnShift)};
  }
  [[nodiscard]] constexpr Pte at_subpage(std::uint64_t index) const {
    return Pte{raw_ + (index << kPfnShift)};
  }
  // Zero if both map the same page, or none, as the same kind of page.
  [[nodiscard]] constexpr std::uint64_t differs_in_page(Pte other) const {
    constexpr std::uint64_t kFlags = (std::uint64_t{1} << kPfnShift) - 1;
    return (raw_ ^ other.raw_) & (~kFlags | kPresent | kZero | kFile | kHugetlb);
  }
  // The same kind of entry with the same bits, of whatever page.
  [[nodiscard]] constexpr bool same_bits(Pte other) const {
    return differs_in_bits(other) == 0;
  }
  // Zero if so.
  [[nodiscard]] constexpr std::uint64_t differs_in_bits(Pte other) const {
    return (raw_ ^ other.raw_) << kPfnShift;
  }
  // Of this entry's page, with the bits of `other`.
  [[nodiscard]] constexpr Pte with_bits_of(Pte other) const {
    constexpr std::uint64_t kFlags = (std::uint64_t{1} << kPfnShift) - 1;
    return Pte{(raw_ & ~kFlags) | (other.raw_ & kFlags)};
  }
  [[nodiscard]] constexpr bool has_all(std::uint64_t bits) const {
    return (raw_ & bits) == bits;
  }
  // What the kernel's rights ask for; hardware may ask for kYoung and kDirty, too
  // (PageTables).
  [[nodiscard]] static constexpr std::uint64_t rights(Access access) {
    return access == Access::kWrite ? kPresent | kUser | kWrite : kPresent | kUser;
  }

 private:
  static constexpr unsigned kPfnShift = 32;
  std::uint64_t raw_ = 0;
};
static_assert(sizeof(Pte) == 8);

}  // namespace faultline::kernel
