// SPDX-License-Identifier: Apache-2.0
//
// Random programs.  Uniform ones mostly fail at once, so offsets cluster: most ranges start
// where an earlier one started or ended, and lengths are small numbers of pages or of huge
// pages.
#include <array>

#include "tests/oracle/program.h"

namespace faultline::oracle {
namespace {

// splitmix64: the same numbers on every host.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename T, std::size_t N>
  T pick(const std::array<T, N>& a) {
    return a[below(N)];
  }

 private:
  std::uint64_t state_;
};

class Generator {
 public:
  Generator(std::uint64_t seed, const Mix& mix) : random_(seed), mix_(mix) {
    // Who isn't made has no operations of its own.
    for (const std::string& name : mix_.without)
      if (name == "fork" || name == "exit") mix_.fork = false;
    // A program plays in a few places, so that its calls meet each other.
    region_ = random_.below(kWindowBytes / kHuge) * kHuge;
    region_bytes_ =
        random_.pick(std::array<std::uint64_t, 4>{64 << 10, 1 << 20, 4 << 20, 16 << 20});
    region_bytes_ = std::min(region_bytes_, kWindowBytes - region_);
    // Model: mremap of a hugetlb mapping isn't known, so a program has one or the other.
    hugetlb_ = mix_.hugetlb && !mix_.basic && random_.one_in(8);
  }

  Program make(unsigned ops) {
    Program program;
    alive_ = {true, false, false};
    for (unsigned i = 0; i < ops; ++i) program.push_back(op(i));
    return program;
  }

 private:
  static constexpr std::uint64_t kHuge = 2 << 20;
  static constexpr int kFree = 8, kCold = 20, kPageout = 21;

  std::uint64_t offset() {
    std::uint64_t at;
    if (!edges_.empty() && !random_.one_in(3)) {
      at = edges_[random_.below(edges_.size())];
      if (random_.one_in(3))
        at += (random_.below(9)) * mix_.page;
      else if (random_.one_in(5))
        at -= std::min(at, random_.below(5) * mix_.page);
    } else if (mix_.huge && random_.one_in(3)) {
      at = region_ + random_.below(region_bytes_ / kHuge + 1) * kHuge;
    } else {
      at = region_ + random_.below(region_bytes_ / mix_.page) * mix_.page;
    }
    return std::min(at, kWindowBytes - mix_.page);
  }
  std::uint64_t length(std::uint64_t at) {
    std::uint64_t n;
    if (mix_.huge && random_.one_in(4))
      n = (1 + random_.below(3)) * kHuge;
    else if (random_.one_in(8))
      n = (1 + random_.below(1024)) * mix_.page;
    else
      n = (1 + random_.below(12)) * mix_.page;
    return std::min(n, kWindowBytes - at);
  }
  void remember(std::uint64_t at, std::uint64_t len) {
    if (edges_.size() > 12) edges_.erase(edges_.begin());
    edges_.push_back(at);
    edges_.push_back(std::min(at + len, kWindowBytes - mix_.page));
  }
  void misalign(Op& op) {
    if (random_.one_in(25))
      op.off = std::min(op.off + 1 + random_.below(mix_.page - 1), kWindowBytes - 1);
    if (random_.one_in(25)) op.len -= random_.below(mix_.page);
    if (random_.one_in(60)) op.len = 0;
    if (random_.one_in(400)) op.len = ~std::uint64_t{0} - random_.below(3 * mix_.page);
  }
  unsigned prot() { return random_.pick(std::array<unsigned, 8>{3, 3, 3, 3, 1, 1, 0, 2}); }

  unsigned process() {
    for (;;) {
      const unsigned p = static_cast<unsigned>(random_.below(kMaxProcs));
      if (alive_[p]) return p;
    }
  }

  Op op(unsigned i) {
    Op op;
    op.proc = process();
    op.off = offset();
    op.len = length(op.off);
    const std::uint64_t dice = i == 0 ? 0 : random_.below(100);
    if (dice < 16)
      mmap(op);
    else if (dice < 23) {
      op.call = Call::kMunmap;
      misalign(op);
    } else if (dice < 31) {
      op.call = Call::kMprotect;
      op.prot = prot();
      misalign(op);
    } else if (dice < 53)
      madvise(op);
    else if (dice < 58 && !hugetlb_)
      mremap(op);
    else if (dice < 62 && mix_.basic)
      touch(op);
    else if (dice < 60) {
      op.call = random_.pick(std::array{Call::kMlock, Call::kMunlock, Call::kMlockOnfault});
      misalign(op);
    } else if (dice < 62) {
      rare(op);
      misalign(op);
    } else if (dice < 64 && mix_.fork)
      fork_or_exit(op);
    else
      touch(op);
    for (const std::string& name : mix_.without)
      if (uses(op, name)) touch(op);
    if (op.call != Call::kRead && op.call != Call::kWrite)
      remember(op.off - op.off % mix_.page, op.len);
    return op;
  }

  void rare(Op& op) {
    op.call = random_.pick(std::array{Call::kMincore, Call::kMincore, Call::kName,
                                      Call::kName, Call::kThpDisable});
    if (op.call == Call::kName)
      op.value = static_cast<std::uint8_t>(random_.below(kAnonNames.size()));
    if (op.call == Call::kThpDisable) op.value = random_.one_in(3);
  }
  void mmap(Op& op) {
    op.call = Call::kMmap;
    op.prot = prot();
    op.flags =
        0x02 | (random_.one_in(8) ? 0x100000u : 0x10u);  // private; fixed or noreplace
    if (random_.one_in(8)) op.flags |= 0x4000;           // noreserve
    if (!mix_.basic && random_.one_in(10)) op.flags |= 0x8000;  // populate
    if (random_.one_in(20)) op.flags |= 0x20000;                // stack
    if (hugetlb_ && random_.one_in(3)) {
      op.flags |= 0x40000;
      if (!random_.one_in(6)) op.off -= op.off % kHuge;
      if (random_.one_in(2)) op.flags |= 0x4000;
    }
    if (random_.one_in(2) && op.len < (1 << 20))
      op.len = std::min(region_bytes_, kWindowBytes - op.off);
    misalign(op);
  }
  void madvise(Op& op) {
    op.call = Call::kMadvise;
    if (mix_.basic) {
      op.advice = random_.pick(std::array<int, 9>{4, 4, 4, 4, 14, 14, 15, 0, 99});
      misalign(op);
      return;
    }
    static constexpr std::array<int, 30> kCommon = {
        4,  4,  4,  4,  4,  4,  8,  8,   8,   8,  14, 14, 14, 14, 15,
        15, 22, 23, 23, 25, 25, 25, 102, 103, 20, 21, 24, 0,  3,  18};
    static constexpr std::array<int, 6> kRare = {1, 2, 10, 11, 19, 99};
    op.advice = random_.one_in(12) ? random_.pick(kRare) : random_.pick(kCommon);
    // What MADV_PAGEOUT reclaims of lazily freed pages depends on the host's LRU lists.
    if (op.advice == kFree) freed_ = true;
    if (op.advice == kPageout && freed_) op.advice = kCold;
    misalign(op);
  }
  void mremap(Op& op) {
    op.call = Call::kMremap;
    op.new_off = offset();
    op.new_len = random_.one_in(3) ? op.len : length(op.new_off);
    op.flags = random_.pick(std::array<unsigned, 6>{0, 3, 3, 3, mix_.basic ? 3u : 7u, 2});
    if (op.flags == 7 && !random_.one_in(4))
      op.new_len = op.len;  // DONTUNMAP wants equal lengths
    if (random_.one_in(30)) op.new_off = std::min(op.new_off + 1, kWindowBytes - 1);
    misalign(op);
  }
  void fork_or_exit(Op& op) {
    if (random_.one_in(3) && exits(op)) return;
    for (unsigned p = 1; p < kMaxProcs; ++p) {
      if (alive_[p]) continue;
      op.call = Call::kFork;
      op.value = static_cast<std::uint8_t>(p);
      alive_[p] = true;
      return;
    }
    static_cast<void>(exits(op));
  }
  bool exits(Op& op) {
    const unsigned p = 1 + static_cast<unsigned>(random_.below(kMaxProcs - 1));
    if (!alive_[p]) return false;
    op.call = Call::kExit;
    op.proc = p;
    alive_[p] = false;
    return true;
  }
  void touch(Op& op) {
    op.call = random_.one_in(3) ? Call::kRead : Call::kWrite;
    op.off = std::min(op.off + (random_.one_in(4) ? random_.below(mix_.page) : 0),
                      kWindowBytes - 1);
    op.len = 0;
    op.value = static_cast<std::uint8_t>(1 + random_.below(255));
  }

  Random random_;
  Mix mix_;
  std::uint64_t region_ = 0, region_bytes_ = 0;
  bool freed_ = false, hugetlb_ = false;
  std::vector<std::uint64_t> edges_;
  std::array<bool, kMaxProcs> alive_{};
};

}  // namespace

Program generate(std::uint64_t seed, unsigned ops, const Mix& mix) {
  return Generator(seed, mix).make(ops);
}

}  // namespace faultline::oracle
