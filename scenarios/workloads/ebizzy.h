// SPDX-License-Identifier: Apache-2.0
//
// ebizzy: threads that allocate a block, copy a chunk of records into it, look one record
// up by binary search, and free it, for some seconds.  The result is records a second.
//
// Its random numbers are constant: the generator's state is passed by value (the release of
// 2007), or starts at zero and is multiplied by a constant (LTP since 2009).  Each thread
// copies the same chunk and seeks the same key all the time, so that source and destination
// stay in the caches, and all other chunks are written once and then cold.  random =
// "works" is what its author meant.
//
// Stands for: ebizzy 0.3 (V. Henson, 2007) and LTP's copy; written anew.  Model: the thread
// that sleeps and ends the run is one more thread; chunks after the first are filled by
// copying it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/platform.h"
#include "allocator/ptmalloc/settings.h"
#include "scenarios/workloads/workload.h"

namespace faultline::workloads {

namespace ebizzy_places {
inline constexpr alloc::Place kThread{"thread_run"};
inline constexpr alloc::Place kSearch{"search_mem"};
inline constexpr alloc::Place kCopy{"memcpy"};
inline constexpr alloc::Place kFill{"allocate"};
}  // namespace ebizzy_places

struct EbizzyOptions {
  explicit EbizzyOptions(const Params& params, unsigned cpus);

  unsigned threads;
  std::uint64_t seconds, chunks, chunk_bytes;
  bool always_mmap, never_mmap, permissions, page_padding, random_size, touch_only,
      no_lib_memcpy, linear, random_works;

  static constexpr std::uint64_t kRecord = 8;  // sizeof(size_t)
};

inline EbizzyOptions::EbizzyOptions(const Params& params, unsigned cpus)
    : threads(static_cast<unsigned>(params.number("threads"))),
      seconds(params.bytes("seconds")),
      chunks(params.bytes("chunks")),
      chunk_bytes(params.bytes("chunk_size") & ~(kRecord - 1)),
      always_mmap(params.choice("mmap") == "always"),
      never_mmap(params.choice("mmap") == "never"),
      permissions(params.choice("permissions") == "yes"),
      page_padding(params.choice("page_padding") == "yes"),
      random_size(params.choice("random_size") == "yes"),
      touch_only(params.choice("touch_only") == "yes"),
      no_lib_memcpy(params.choice("lib_memcpy") == "no"),
      linear(params.choice("search") == "linear"),
      random_works(params.choice("random") == "works") {
  if (threads == 0) threads = 2 * cpus;
}

// rand_num().
class EbizzyRandom {
 public:
  EbizzyRandom(bool works, unsigned thread) : state_(works ? thread + 1 : 0) {}
  std::uint64_t below(std::uint64_t limit) {
    constexpr std::uint64_t kFactor = 1'103'527'590, kIncrement = 12'345;
    // 0 stays 0.
    state_ = state_ == 0 ? 0 : (state_ * kFactor + kIncrement) % (std::uint64_t{1} << 31);
    return (state_ >> (state_ == 0 ? 0 : 4)) % limit;
  }

 private:
  std::uint64_t state_;
};

template <alloc::ThreadedPlatform P, typename Allocator>
class Ebizzy {
 public:
  using Addr = alloc::Addr;

  Ebizzy(P& main, Allocator& heap, const EbizzyOptions& options, Progress& progress)
      : heap_(heap), o_(options), progress_(progress), go_(main.static_storage(8)) {}

  Outcome run(P& main) {
    if (o_.never_mmap) heap_.mallopt(main, alloc::Param::kMmapMax, 0);
    Outcome out;
    if (!fill(main)) {
      out.failure = "malloc answered NULL";
      return out;
    }
    records_.resize(o_.threads);
    progress_.total = o_.seconds;
    main.atomic_store(go_, 1);
    started_ = main.monotonic_ns();
    main.run_threads(
        o_.threads + 1,
        [](P& p, unsigned index, void* self) {
          static_cast<Ebizzy*>(self)->thread(p, index);
        },
        this);
    std::uint64_t sum = 0;
    for (const std::uint64_t r : records_) sum += r;
    out.counts["records"] = sum;
    out.counts["records-per-s"] = rate(sum);
    if (not_found_ != 0) out.failure = "a record was not found where it must be";
    if (refused_ != 0) out.failure = "malloc answered NULL";
    return out;
  }

 private:
  static constexpr std::uint64_t kRecord = EbizzyOptions::kRecord;
  static constexpr std::uint64_t kSecond = 1'000'000'000;  // ns

  Addr allocate(P& p, std::uint64_t bytes) {
    if (!o_.always_mmap) return heap_.malloc(p, bytes);
    const alloc::SysValue map =
        p.mmap(0, bytes, alloc::sys::kProtRead | alloc::sys::kProtWrite,
               alloc::sys::kMapPrivate | alloc::sys::kMapAnonymous);
    return map.ok() ? map.value : 0;
  }
  void give_back(P& p, Addr block, std::uint64_t bytes) {
    if (o_.always_mmap)
      p.munmap(block, bytes);
    else
      heap_.free(p, block);
  }

  // allocate(), write_pattern(): the array of pointers, and the chunks with their records.
  bool fill(P& p) {
    const typename P::Frame frame(p, ebizzy_places::kFill);
    const Addr table = heap_.malloc(p, o_.chunks * sizeof(Addr));
    std::vector<Addr> padding;
    for (std::uint64_t i = 0; table != 0 && i < o_.chunks; ++i) {
      const Addr chunk = allocate(p, o_.chunk_bytes);
      if (chunk == 0) return false;
      p.template store<Addr>(table + i * sizeof(Addr), chunk);
      chunks_.push_back(chunk);
      if (o_.page_padding) padding.push_back(allocate(p, p.facts().page_size));
    }
    if (table == 0) return false;
    for (const Addr page : padding)
      if (page != 0) give_back(p, page, p.facts().page_size);
    for (std::uint64_t i = 0; i < o_.chunks; ++i) write_pattern(p, i);
    return true;
  }
  void write_pattern(P& p, std::uint64_t i) {
    const Addr chunk = chunks_[i];
    if (i > 0) {
      p.copy(chunk, chunks_[0], o_.chunk_bytes);
    } else {
      for (std::uint64_t j = 0; j < o_.chunk_bytes / kRecord; ++j)
        p.template store<std::uint64_t>(chunk + j * kRecord, j);
    }
    if (!o_.permissions || i % 2 != 0) return;
    const std::uint64_t page = p.facts().page_size;
    const Addr start = (chunk + page - 1) & ~(page - 1);
    const Addr end = (chunk + o_.chunk_bytes) & ~(page - 1);
    if (start < end) p.mprotect(start, end - start, alloc::sys::kProtRead);
  }

  void thread(P& p, unsigned index) {
    const typename P::Frame frame(p, ebizzy_places::kThread);
    if (index == o_.threads) return keep_time(p);
    EbizzyRandom numbers(o_.random_works, index);
    while (p.atomic_load(go_) != 0 && record(p, numbers)) ++records_[index];
  }

  // Sleeps from second to second, each counted from the start, so that waking late doesn't
  // make the run longer.
  void keep_time(P& p) {
    for (std::uint64_t second = 1; second <= o_.seconds; ++second) {
      const std::uint64_t end = started_ + second * kSecond;
      if (const std::uint64_t now = p.monotonic_ns(); now < end)
        p.usleep((end - now) / 1000);
      progress_.done.fetch_add(1, std::memory_order_relaxed);
    }
    p.atomic_store(go_, 0);
    elapsed_ = p.monotonic_ns() - started_;
  }
  // The program divides by whole seconds.  In its 10 to 30 s that is the same; a run of 2 s
  // on busy CPUs may well end some per cent late.
  [[nodiscard]] std::uint64_t rate(std::uint64_t records) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(Wide{records} * kSecond / elapsed_);
  }

  // One record of search_mem(); false if it failed.
  bool record(P& p, EbizzyRandom& numbers) {
    constexpr std::uint64_t kLoopInstructions = 60;
    p.cycles(kLoopInstructions);
    const Addr source = chunks_[numbers.below(o_.chunks)];
    std::uint64_t bytes = o_.chunk_bytes;
    if (o_.random_size) bytes = (numbers.below(bytes / kRecord) + 1) * kRecord;
    const Addr copy = allocate(p, bytes);
    if (copy == 0) {
      ++refused_;
      return false;
    }
    bool found = true;
    if (o_.touch_only) {
      for (std::uint64_t at = 0; at < bytes; at += p.facts().page_size)
        p.template store<std::uint8_t>(copy + at, 0xff);
    } else {
      copy_chunk(p, copy, source, bytes);
      const std::uint64_t key = numbers.below(bytes / kRecord);
      found = search(p, copy, bytes / kRecord, key) == key;
    }
    give_back(p, copy, bytes);
    not_found_ += found ? 0 : 1;
    return found;
  }

  // my_memcpy() is a loop over bytes.
  void copy_chunk(P& p, Addr to, Addr from, std::uint64_t bytes) {
    constexpr std::uint64_t kInstructionsPerByte = 5;
    const typename P::Frame frame(p, ebizzy_places::kCopy);
    p.copy(to, from, bytes);
    if (o_.no_lib_memcpy) p.cycles(bytes * kInstructionsPerByte);
  }

  // linear_search(), or bsearch() of the libc: the index of the key, or `count`.
  std::uint64_t search(P& p, Addr table, std::uint64_t count, std::uint64_t key) {
    constexpr std::uint64_t kProbe = 15, kStep = 4;
    const typename P::Frame frame(p, ebizzy_places::kSearch);
    const auto at = [&](std::uint64_t i) {
      return p.template load<std::uint64_t>(table + i * kRecord);
    };
    if (o_.linear) {
      std::uint64_t i = 0;
      while (i < count && at(i) != key) ++i;
      p.cycles(i * kStep);
      return i;
    }
    std::uint64_t low = 0, high = count;
    while (low < high) {
      p.cycles(kProbe);
      const std::uint64_t middle = (low + high) / 2;
      const std::uint64_t value = at(middle);
      if (value == key) return middle;
      if (key < value)
        high = middle;
      else
        low = middle + 1;
    }
    return count;
  }

  Allocator& heap_;
  const EbizzyOptions& o_;
  Progress& progress_;
  Addr go_;  // threads_go
  std::vector<Addr> chunks_;
  std::vector<std::uint64_t> records_;
  // Between the two changes of the flag, ns.
  std::uint64_t started_ = 0, elapsed_ = kSecond;
  std::atomic<std::uint64_t> not_found_{0}, refused_{0};
};

template <alloc::ThreadedPlatform P, typename Allocator>
Outcome ebizzy(P& p, Allocator& heap, const Params& params, Progress& progress) {
  const EbizzyOptions options(params, p.facts().cpus);
  return Ebizzy<P, Allocator>(p, heap, options, progress).run(p);
}

}  // namespace faultline::workloads
