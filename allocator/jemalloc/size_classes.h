// SPDX-License-Identifier: Apache-2.0
//
// The sizes of small regions, and how large the runs are that they are cut from.
//
// 8, the multiples of 16 up to 128, then four to each doubling as long as a class is
// smaller than a page.  A run is as long as it takes to waste no more than a sixty-seventh
// on its head and its end.
//
// Stands for: size_classes.sh, bin_info_run_size_calc() (src/arena.c, 3.3.1), whose page
// size is fixed when it is built.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace faultline::alloc::je {

struct BinInfo {
  std::uint64_t region = 0;  // bytes
  std::uint64_t run = 0;     // bytes, whole pages
  std::uint32_t regions = 0;
  std::uint32_t first = 0;         // offset of the first region
  std::uint32_t bitmap_words = 0;  // one bit a region: set if free
};

class SizeClasses {
 public:
  static constexpr unsigned kMost = 64;

  SizeClasses(std::uint64_t page, std::uint64_t max_run) {
    for (std::uint64_t size = 8; size < page; size = next(size)) add(size, page, max_run);
  }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] std::uint64_t largest() const { return bins_[count_ - 1].region; }
  [[nodiscard]] const BinInfo& operator[](unsigned bin) const { return bins_[bin]; }
  // The class of a size that is small.
  [[nodiscard]] unsigned bin_of(std::uint64_t size) const {
    if (size <= 8) return 0;
    if (size <= 128) return static_cast<unsigned>((size + 15) / 16);
    const unsigned doubling = static_cast<unsigned>(std::bit_width(size - 1)) - 1;
    const std::uint64_t step = std::uint64_t{1} << (doubling - 2);
    constexpr unsigned kFirstBin = 9, kFirstDoubling = 7;  // 160
    return kFirstBin + 4 * (doubling - kFirstDoubling) +
           static_cast<unsigned>((size - 1 - (std::uint64_t{1} << doubling)) / step);
  }

 private:
  static std::uint64_t next(std::uint64_t size) {
    if (size < 16) return 16;
    if (size < 128) return size + 16;
    return size + (std::bit_floor(size) >> 2);
  }
  static BinInfo fit(std::uint64_t region, std::uint64_t run) {
    constexpr std::uint64_t kHead = 16, kMostRegions = 2048, kBits = 64;
    BinInfo b;
    b.region = region;
    b.run = run;
    std::uint64_t n = (run - kHead) / region;
    if (n > kMostRegions) n = kMostRegions;
    while (kHead + (n + kBits - 1) / kBits * 8 + n * region > run) --n;
    b.regions = static_cast<std::uint32_t>(n);
    b.bitmap_words = static_cast<std::uint32_t>((n + kBits - 1) / kBits);
    b.first = static_cast<std::uint32_t>(run - n * region);
    return b;
  }
  void add(std::uint64_t region, std::uint64_t page, std::uint64_t max_run) {
    // RUN_MAX_OVRHD and its base, RUN_MAX_OVRHD_RELAX: a class below 13 bytes may waste
    // more.
    constexpr std::uint64_t kMostWaste = 0x3d, kBase = 12, kRelax = 0x1800,
                            kMostRegions = 2048;
    std::uint64_t run = page;
    while (run < region + 64) run += page;
    BinInfo good = fit(region, run);
    for (;;) {
      const bool wasteful = (std::uint64_t{good.first} << kBase) > kMostWaste * good.run;
      if (kMostWaste * (region << 3) <= kRelax || !wasteful || good.regions >= kMostRegions)
        break;
      run += page;
      if (run > max_run) break;
      good = fit(region, run);
    }
    bins_[count_++] = good;
  }

  std::array<BinInfo, kMost> bins_{};
  unsigned count_ = 0;
};

}  // namespace faultline::alloc::je
