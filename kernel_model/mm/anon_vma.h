// SPDX-License-Identifier: Apache-2.0
//
// Who owns the anonymous pages of a mapping: identity only.  Two VMAs may merge if they
// share it, or if at most one of them has one (kernel facts: is_mergeable_anon_vma).
//
// Stands for: struct anon_vma (include/linux/rmap.h, v4.15-6.18).  Model: no interval tree
// of VMAs, so nothing has to live as long as its users; the reverse map is found by walking
// the page tables of the sharing address spaces.
#pragma once

#include <cstddef>
#include <cstdint>

namespace faultline::kernel {

class AnonVmaRef {
 public:
  constexpr AnonVmaRef() = default;  // none
  constexpr AnonVmaRef(std::nullptr_t) {
  }  // NOLINT(google-explicit-constructor): `= nullptr`
  // `number` is unlike that of every other anon_vma of the kernel
  // (MmShared::new_anon_vma()).
  constexpr explicit AnonVmaRef(std::uint64_t number) : number_(number) {}

  [[nodiscard]] constexpr explicit operator bool() const { return number_ != 0; }
  [[nodiscard]] constexpr bool operator==(const AnonVmaRef&) const = default;
  [[nodiscard]] constexpr bool operator==(std::nullptr_t) const { return number_ == 0; }

 private:
  std::uint64_t number_ = 0;
};

}  // namespace faultline::kernel
