// SPDX-License-Identifier: Apache-2.0
//
// The words of the modelled kernel: addresses, frames, errno, flags.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

namespace faultline::kernel {

// An address of a modelled process.
struct VirtAddr {
  std::uint64_t v = 0;
  constexpr auto operator<=>(const VirtAddr&) const = default;
  friend constexpr VirtAddr operator+(VirtAddr a, std::uint64_t n) { return {a.v + n}; }
  friend constexpr VirtAddr operator-(VirtAddr a, std::uint64_t n) { return {a.v - n}; }
  friend constexpr std::uint64_t operator-(VirtAddr a, VirtAddr b) { return a.v - b.v; }
};

// [start, end)
struct Range {
  VirtAddr start, end;
  [[nodiscard]] constexpr std::uint64_t bytes() const { return end.v - start.v; }
  [[nodiscard]] constexpr bool empty() const { return end.v <= start.v; }
  [[nodiscard]] constexpr bool contains(VirtAddr a) const { return start <= a && a < end; }
  [[nodiscard]] constexpr bool contains(Range r) const {
    return start <= r.start && r.end <= end;
  }
  constexpr auto operator<=>(const Range&) const = default;
};

// Page frame number, machine-wide.
struct Pfn {
  std::uint32_t v = 0;
  constexpr auto operator<=>(const Pfn&) const = default;
};

// A frame, or none: what an allocation answers.  As std::optional, but one word: an
// optional of four bytes is written in two parts and read in one, which costs each
// allocation a stall.
class MaybePfn {
 public:
  constexpr MaybePfn() = default;
  // NOLINTBEGIN(google-explicit-constructor): as std::optional's
  constexpr MaybePfn(std::nullopt_t) {}
  constexpr MaybePfn(Pfn pfn) : pfn_(pfn) {}
  constexpr operator std::optional<Pfn>() const {
    return has_value() ? std::optional<Pfn>(pfn_) : std::nullopt;
  }
  // NOLINTEND(google-explicit-constructor)
  [[nodiscard]] constexpr bool has_value() const { return pfn_.v != kNone; }
  constexpr explicit operator bool() const { return has_value(); }
  constexpr const Pfn& operator*() const { return pfn_; }
  constexpr const Pfn* operator->() const { return &pfn_; }
  constexpr void reset() { pfn_ = {kNone}; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;  // no machine has that many frames
  Pfn pfn_{kNone};
};

enum class Errno : int {
  kOk = 0,
  kEPERM = 1,
  kESRCH = 3,
  kEINTR = 4,
  kENXIO = 6,
  kEBADF = 9,
  kEAGAIN = 11,
  kENOMEM = 12,
  kEACCES = 13,
  kEFAULT = 14,
  kEBUSY = 16,
  kEEXIST = 17,
  kENODEV = 19,
  kEINVAL = 22,
  kENOSYS = 38,
  kEHWPOISON = 133,
};
[[nodiscard]] std::string_view errno_name(Errno e);

// What a modelled system call answers: a value or an errno.
template <typename T>
class [[nodiscard]] SysResult {
 public:
  constexpr SysResult(T value) : value_(value) {}  // NOLINT: implicit on purpose
  constexpr SysResult(Errno e) : error_(e) {}      // NOLINT
  [[nodiscard]] constexpr bool ok() const { return error_ == Errno::kOk; }
  [[nodiscard]] constexpr Errno error() const { return error_; }
  [[nodiscard]] constexpr const T& value() const { return value_; }

 private:
  T value_{};
  Errno error_ = Errno::kOk;
};
using SysStatus = Errno;

// PROT_* and MAP_* with Linux's own values (asm-generic), so that traces read as strace's.
enum Prot : unsigned { kProtNone = 0, kProtRead = 1, kProtWrite = 2, kProtExec = 4 };
enum MapFlags : unsigned {
  kMapShared = 0x01,
  kMapPrivate = 0x02,
  kMapFixed = 0x10,
  kMapAnonymous = 0x20,
  kMapGrowsdown = 0x100,
  kMapLocked = 0x2000,
  kMapNoreserve = 0x4000,
  kMapPopulate = 0x8000,
  kMapNonblock = 0x10000,
  kMapStack = 0x20000,
  kMapHugetlb = 0x40000,
  kMapFixedNoreplace = 0x100000,
};
inline constexpr unsigned kMapHugeShift = 26;
enum MremapFlags : unsigned { kMremapMaymove = 1, kMremapFixed = 2, kMremapDontunmap = 4 };
enum class Madvise : int {
  kNormal = 0,
  kRandom = 1,
  kSequential = 2,
  kWillneed = 3,
  kDontneed = 4,
  kFree = 8,
  kRemove = 9,
  kDontfork = 10,
  kDofork = 11,
  kHugepage = 14,
  kNohugepage = 15,
  kDontdump = 16,
  kDodump = 17,
  kWipeonfork = 18,
  kKeeponfork = 19,
  kCold = 20,
  kPageout = 21,
  kPopulateRead = 22,
  kPopulateWrite = 23,
  kDontneedLocked = 24,
  kCollapse = 25,
  kGuardInstall = 102,
  kGuardRemove = 103,
};

enum class Access : std::uint8_t { kRead, kWrite };
// What a user access ends in.
enum class Signal : std::uint8_t { kNone, kSegv, kBus, kKill };

}  // namespace faultline::kernel
