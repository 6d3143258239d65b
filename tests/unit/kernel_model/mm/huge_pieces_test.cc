// SPDX-License-Identifier: Apache-2.0
//
// Pieces of a huge page that one process has mapped: bits say which, until the struct pages
// have to.
#include "kernel_model/mm/huge_pieces.h"

#include <gtest/gtest.h>

#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/rmap.h"
#include "tests/unit/kernel_model/mm/machine.h"

namespace faultline::kernel {
namespace {

constexpr unsigned kOrder = 9;
constexpr std::uint32_t kPages = 1U << kOrder;

TEST(HugePieces, KnowsTheFramesOfHugePages) {
  HugePieces pieces(kOrder);
  pieces.add_huge_page({3 * kPages});
  EXPECT_TRUE(pieces.covers({3 * kPages}));
  EXPECT_TRUE(pieces.covers({4 * kPages - 1}));
  EXPECT_FALSE(pieces.covers({4 * kPages}));
  EXPECT_FALSE(pieces.covers({3 * kPages - 1}));
  EXPECT_EQ(pieces.head_of({3 * kPages + 77}).v, 3 * kPages);
  pieces.remove_huge_page({3 * kPages});
  EXPECT_FALSE(pieces.covers({3 * kPages}));
}

TEST(HugePieces, UnmapsRangesOfBits) {
  HugePieces pieces(kOrder);
  const Pfn head{kPages};
  pieces.add_huge_page(head);
  EXPECT_FALSE(pieces.has_bits(head));
  pieces.map_all(head);
  pieces.unmap({kPages + 60}, 10);
  pieces.unmap({kPages + 128}, 64);
  pieces.unmap({2 * kPages - 1}, 1);
  for (std::uint32_t i = 0; i < kPages; ++i) {
    const bool gone = (i >= 60 && i < 70) || (i >= 128 && i < 192) || i == kPages - 1;
    ASSERT_EQ(pieces.mapped({kPages + i}), !gone) << i;
  }
  pieces.drop_bits(head);
  EXPECT_FALSE(pieces.has_bits(head));
  EXPECT_TRUE(pieces.covers(head));
}

TEST(HugePiecesDeathTest, NoPieceIsUnmappedTwice) {
  HugePieces pieces(kOrder);
  pieces.add_huge_page({0});
  pieces.map_all({0});
  pieces.unmap({5}, 2);
  EXPECT_DEATH(pieces.unmap({6}, 1), "these");
}

// Bits as long as one process has the pieces; a fork needs the struct pages, and both count
// the same.
TEST(HugePieces, AForkMovesTheBitsToTheStructPages) {
  using namespace testing;
  Machine m("x86-4k", "6.1",
            [](KernelConfig& config) { config.thp_enabled = ThpEnabled::kAlways; });
  m.run([&](Task& task) {
    Thread t(task, m);
    const VirtAddr huge{(t.mmap(4 * kMiB).v + 2 * kMiB - 1) & ~(2 * kMiB - 1)};
    EXPECT_EQ(t.write(huge), Signal::kNone);
    const Pfn head = m.mm().pages().look(huge).pfn;
    const HugePieces& pieces = m.kernel().mm_shared().huge_pieces;
    EXPECT_TRUE(pieces.covers(head));
    EXPECT_EQ(t.munmap(huge + 3 * m.page(), 5 * m.page()), Errno::kOk);
    EXPECT_TRUE(pieces.has_bits(head));
    EXPECT_EQ(total_mapcount(m.kernel(), head), 512 - 5);
    EXPECT_EQ(pte_mapcount(m.kernel(), {head.v + 2}), 1);
    EXPECT_EQ(pte_mapcount(m.kernel(), {head.v + 3}), 0);
    EXPECT_TRUE(is_exclusive(m.kernel(), {head.v + 2}));
    check_invariants(m.kernel());

    EXPECT_TRUE(sys_fork(task, m.process()).ok());
    EXPECT_FALSE(pieces.has_bits(head));
    EXPECT_EQ(total_mapcount(m.kernel(), head), 2 * (512 - 5));
    EXPECT_EQ(pte_mapcount(m.kernel(), {head.v + 2}), 2);
    EXPECT_EQ(pte_mapcount(m.kernel(), {head.v + 3}), 0);
    EXPECT_FALSE(is_exclusive(m.kernel(), {head.v + 2}));
    check_invariants(m.kernel());
  });
}

}  // namespace
}  // namespace faultline::kernel
