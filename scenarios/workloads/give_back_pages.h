// SPDX-License-Identifier: Apache-2.0
//
// What giving memory back costs, and what is left of it: a heap of which some runs of
// blocks are free, given back again and again.
//
// The heap is written once.  A run of `run` free blocks begins every `every` blocks; of
// each run the whole pages that it covers can be given back, which is all that an allocator
// can do for a fragmented heap.  In each round every run is given back and, if asked for,
// taken again and written.  At the end all of them are given back once more; then the
// program sleeps a while, in which the kernel may take what it was offered, and at last
// writes to the runs again, if asked for.
#pragma once

#include <cstdint>
#include <string>

#include "scenarios/workloads/give_back.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

inline constexpr std::string_view kYesNo[] = {"yes", "no"};

template <alloc::ThreadedPlatform P>
class GiveBackPages {
 public:
  GiveBackPages(P& p, const Params& params, Progress& progress)
      : policy_(p, params.choice("policy")),
        heap_(params.bytes("heap")),
        block_(params.bytes("block")),
        run_(params.bytes("run")),
        every_(params.bytes("every")),
        rounds_(params.bytes("rounds")),
        pause_ms_(params.bytes("pause_ms")),
        rewrites_(params.choice("rewrite") == "yes"),
        reuses_(params.choice("reuse") == "yes"),
        done_at_(p.static_storage(sizeof(std::uint64_t))),
        progress_(progress) {
    progress.total = rounds_;
  }

  // The first thread works, the others compute, so that TLB flushes concern them, too.
  void thread(P& p, unsigned index) {
    if (index == 0) {
      work(p);
      p.atomic_store(done_at_, 1);
      return;
    }
    constexpr std::uint64_t kCycles = 2000;
    while (p.atomic_load(done_at_) == 0) p.cycles(kCycles);
  }
  [[nodiscard]] const Outcome& outcome() const { return out_; }

 private:
  // Calls f(start, bytes) for the whole pages of each run; answers the bytes of the runs.
  template <typename F>
  std::uint64_t each_run(P& p, F&& f) const {
    const std::uint64_t page = p.facts().page_size;
    std::uint64_t free = 0;
    for (std::uint64_t at = 0; at + run_ * block_ <= heap_; at += every_ * block_) {
      free += run_ * block_;
      const alloc::Addr start = (start_ + at + page - 1) & ~(page - 1);
      const alloc::Addr end = (start_ + at + run_ * block_) & ~(page - 1);
      if (start < end) f(start, end - start);
    }
    return free;
  }
  void give(P& p, alloc::Addr at, std::uint64_t bytes) {
    if (!policy_.give(p, at, bytes)) out_.failure = "a call was refused";
  }
  void use_again(P& p, alloc::Addr at, std::uint64_t bytes) {
    out_.counts["runs-lost"] += policy_.take(p, at, bytes) ? 1 : 0;
    p.touch(at, bytes, alloc::Touch::kWrite);
  }

  void work(P& p) {
    for (const char* name : {"calls", "pages-given", "runs-lost"}) out_.counts[name] = 0;
    const alloc::SysValue map =
        p.mmap(0, heap_, alloc::sys::kProtRead | alloc::sys::kProtWrite,
               alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
    if (!map.ok()) {
      out_.failure = "the heap could not be mapped";
      return;
    }
    start_ = map.value;
    p.touch(start_, heap_, alloc::Touch::kWrite);
    for (std::uint64_t round = 0; round < rounds_; ++round) {
      each_run(p, [&](alloc::Addr at, std::uint64_t bytes) {
        give(p, at, bytes);
        ++out_.counts["calls"];
        out_.counts["pages-given"] += bytes / p.facts().page_size;
        if (rewrites_) use_again(p, at, bytes);
      });
      progress_.done.fetch_add(1, std::memory_order_relaxed);
    }
    std::uint64_t given = 0;
    const std::uint64_t free = each_run(p, [&](alloc::Addr at, std::uint64_t bytes) {
      give(p, at, bytes);
      given += bytes;
    });
    out_.counts["free-kib"] = free / 1024;
    out_.counts["given-kib"] = given / 1024;
    if (pause_ms_ != 0) p.usleep(pause_ms_ * 1000);
    if (reuses_)
      each_run(p, [&](alloc::Addr at, std::uint64_t bytes) { use_again(p, at, bytes); });
  }

  const GiveBack<P> policy_;
  const std::uint64_t heap_, block_, run_, every_, rounds_, pause_ms_;
  const bool rewrites_, reuses_;
  const alloc::Addr done_at_;
  Progress& progress_;
  alloc::Addr start_ = 0;
  Outcome out_;
};

template <alloc::ThreadedPlatform P>
Outcome give_back_pages(P& p, const Params& params, Progress& progress) {
  GiveBackPages<P> program(p, params, progress);
  p.run_threads(
      1 + static_cast<unsigned>(params.number("spinners")),
      [](P& thread, unsigned index, void* arg) {
        static_cast<GiveBackPages<P>*>(arg)->thread(thread, index);
      },
      &program);
  return program.outcome();
}

}  // namespace faultline::workloads
