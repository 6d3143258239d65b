// SPDX-License-Identifier: Apache-2.0
//
// What the tests of both jemallocs share: a record of ebizzy, and the names of their cases.
#pragma once

#include <cstdint>
#include <string>

#include "tests/unit/allocator/bench_malloc.h"

namespace faultline::alloc::toy {

constexpr std::uint64_t kBlock = 512_K;

// One record of ebizzy: allocate 512 KiB, write it, free it.  Its calls stay in the bench's
// log.
struct Record {
  std::size_t madvise = 0, others = 0;
  std::uint64_t bytes = 0;  // of all calls
  std::uint64_t faults = 0;
};
template <typename JemallocBench>
Record one_record(JemallocBench& b) {
  const auto use = [&] {
    const Addr mem = b.malloc(kBlock);
    b.p.set(mem, 1, kBlock);
    b.free(mem);
  };
  for (int i = 0; i < 10; ++i) use();
  b.log.clear();
  const std::uint64_t before = b.os.faults;
  use();
  Record r;
  r.faults = b.os.faults - before;
  r.madvise = b.log.count(SysName::kMadvise);
  r.others = b.log.size() - r.madvise;
  for (std::size_t i = 0; i < b.log.size(); ++i) r.bytes += b.log[i].size;
  return r;
}

// "narenas:4,purge:free" as a test may be called.
inline std::string case_name(std::string options) {
  for (char& c : options)
    if (c == ':' || c == ',' || c == '-') c = '_';
  return options;
}

}  // namespace faultline::alloc::toy
