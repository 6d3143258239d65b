// SPDX-License-Identifier: Apache-2.0
//
// Who owns the anonymous pages of a mapping: identity only.  Two VMAs may merge if they
// share it, or if at most one of them has one (kernel facts: is_mergeable_anon_vma).
//
// The reference counts itself, so a VMA that is copied (split) or moved shares or hands
// over its anon_vma without further calls.
//
// Stands for: struct anon_vma (include/linux/rmap.h, v4.15-6.18).  Model: no interval tree
// of VMAs; the reverse map is found by walking the page tables of the sharing address
// spaces.
#pragma once

#include <cstdint>

namespace faultline::kernel {

struct AnonVma {
  std::uint32_t refs = 0;
};

class AnonVmaRef {
 public:
  AnonVmaRef() = default;
  AnonVmaRef(std::nullptr_t) {}  // NOLINT: `= nullptr`
  AnonVmaRef(const AnonVmaRef& other) : anon_vma_(other.anon_vma_) { get(); }
  AnonVmaRef(AnonVmaRef&& other) noexcept : anon_vma_(other.anon_vma_) {
    other.anon_vma_ = nullptr;
  }
  AnonVmaRef& operator=(AnonVmaRef other) noexcept {
    AnonVma* mine = anon_vma_;
    anon_vma_ = other.anon_vma_;
    other.anon_vma_ = mine;
    return *this;
  }
  ~AnonVmaRef() {
    if (anon_vma_ != nullptr && --anon_vma_->refs == 0) delete anon_vma_;
  }
  [[nodiscard]] static AnonVmaRef make() {
    AnonVmaRef ref;
    ref.anon_vma_ = new AnonVma{1};
    return ref;
  }

  [[nodiscard]] explicit operator bool() const { return anon_vma_ != nullptr; }
  [[nodiscard]] bool operator==(const AnonVmaRef&) const = default;
  [[nodiscard]] bool operator==(std::nullptr_t) const { return anon_vma_ == nullptr; }

 private:
  void get() {
    if (anon_vma_ != nullptr) ++anon_vma_->refs;
  }
  AnonVma* anon_vma_ = nullptr;
};

}  // namespace faultline::kernel
