// SPDX-License-Identifier: Apache-2.0
//
// A small machine with volatile ranges, and a script language for them.
//
// A script is a list of operations on pages of one area: "V2-6" marks pages 2 to 5
// volatile, "N3-4" un-marks page 3, "W0-8" writes, "R0-8" reads, "P2-6" discards what can
// be discarded there.  "=1" behind an operation is the answer it must give, "!" behind an
// access that it must end in SIGBUS.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

#include "kernel_model/mm/vmscan.h"
#include "kernel_model/mm/vrange.h"
#include "tests/unit/kernel_model/mm/small_machine.h"

namespace faultline::kernel::testing {

struct VrangeMachine : Small {
  explicit VrangeMachine(VrangeVersion version,
                         const std::function<void(KernelConfig&)>& adjust = {})
      : Small([&](KernelConfig& c) {
          c.vrange = version;
          if (adjust) adjust(c);
        }) {}

  static constexpr VirtAddr kArea{0x1000'0000};
  static VirtAddr page(std::uint64_t n) { return kArea + n * k4K; }

  void map_area(Task& task, std::uint64_t pages = 64) {
    const auto at = sys_mmap(task, *process, kArea, pages * k4K, kRw, kAnon | kMapFixed);
    ASSERT_TRUE(at.ok());
  }
  SysResult<std::uint64_t> vrange(Task& task, std::uint64_t from, std::uint64_t to,
                                  int mode, int* purged = nullptr) {
    return sys_vrange(task, *process, page(from), (to - from) * k4K, mode, {}, purged);
  }
  std::uint64_t discard(Task& task, std::uint64_t from, std::uint64_t to) {
    kernel->mm_shared().lrus.start();
    ScanControl sc;
    sc.why = ScanControl::For::kKswapd;
    process->mm().mmap_read_lock(task);
    const std::uint64_t n = kernel->mm_shared().vranges().discard_range(
        task, process->mm(), {page(from), page(to)}, -1, sc);
    process->mm().mmap_read_unlock(task);
    return n;
  }

  void play(Task& task, const std::string& script) {
    std::istringstream in(script);
    for (std::string word; in >> word;) {
      SCOPED_TRACE(::testing::Message() << script << " at " << word);
      char* rest = nullptr;
      const std::uint64_t from = std::strtoull(word.c_str() + 1, &rest, 10);
      const std::uint64_t to = std::strtoull(rest + 1, &rest, 10);
      step(task, word[0], from, to, rest);
    }
  }

  // "2-6 8-9!": the ranges in pages, "!": purged.
  std::string ranges(Process* of = nullptr) {
    std::string text;
    for (const VrangeView& v : vranges_of((of != nullptr ? of : process)->mm())) {
      text += (text.empty() ? "" : " ") + std::to_string((v.range.start - kArea) / k4K) +
              "-" + std::to_string((v.range.end - kArea) / k4K) + (v.purged ? "!" : "");
    }
    return text;
  }
  // 'p' a page, '.' nothing, 'x' a purged page's mark, 'z' the zero page, 'H' a huge page.
  std::string draw(std::uint64_t pages, Process* of = nullptr) {
    std::string text;
    for (std::uint64_t i = 0; i < pages; ++i) {
      const PageView::Kind kind =
          (of != nullptr ? of : process)->mm().pages().look(page(i)).kind;
      text += kind == PageView::kNone     ? '.'
              : kind == PageView::kBase   ? 'p'
              : kind == PageView::kPurged ? 'x'
              : kind == PageView::kZero   ? 'z'
              : kind == PageView::kSwap   ? 's'
                                          : 'H';
    }
    return text;
  }

 private:
  void step(Task& task, char op, std::uint64_t from, std::uint64_t to, const char* rest) {
    int purged = 0;
    if (op == 'V' || op == 'N') {
      const auto r = vrange(task, from, to, op == 'V' ? 0 : 1, &purged);
      ASSERT_TRUE(r.ok()) << errno_name(r.error());
      const bool bytes = kernel->config().vrange >= VrangeVersion::k8;
      if (bytes) {
        EXPECT_EQ(r.value(), (to - from) * k4K);
      }
      if (*rest == '=') {
        EXPECT_EQ(bytes ? static_cast<std::uint64_t>(purged) : r.value(),
                  static_cast<std::uint64_t>(rest[1] - '0'));
      }
    } else if (op == 'P') {
      discard(task, from, to);
    } else {
      const Access access = op == 'W' ? Access::kWrite : Access::kRead;
      const Signal signal = touch(task, page(from), (to - from) * k4K, access);
      EXPECT_EQ(signal, *rest == '!' ? Signal::kBus : Signal::kNone);
    }
  }
};

}  // namespace faultline::kernel::testing
