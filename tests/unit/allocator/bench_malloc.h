// SPDX-License-Identifier: Apache-2.0
//
// An allocator on the toy system with a log of its system calls: what most tests start
// from.
#pragma once

#include "allocator/platform/recording.h"
#include "allocator/ptmalloc/ptmalloc.h"
#include "tests/unit/allocator/toy_os.h"

namespace faultline::alloc::toy {

using Thread = Recording<ToyThread>;

// A further thread of a bench's process.
struct BenchThread {
  BenchThread(ToyProcess& os, SysLog& log) : toy(os), p(toy, log) {
    os.multi_threaded = true;
  }
  ToyThread toy;
  Thread p;
};

class Bench {
 public:
  explicit Bench(const char* release, PlatformFacts facts = {}, Settings settings = {})
      : os(facts), main_(os), p(main_, log), heap(p, *find_release(release), settings) {}

  Addr malloc(std::uint64_t bytes) { return heap.malloc(p, bytes); }
  void free(Addr mem) { heap.free(p, mem); }
  [[nodiscard]] std::size_t calls(SysName name) const { return log.count(name); }
  [[nodiscard]] std::size_t failed(SysName name) const { return log.count(name, true); }
  [[nodiscard]] std::uint64_t shared(Shared word) { return heap.shared(p, word); }

  ToyProcess os;
  SysLog log;

 private:
  ToyThread main_;

 public:
  Thread p;
  Ptmalloc<Thread> heap;
};

constexpr std::uint64_t operator""_K(unsigned long long n) {
  return n << 10;
}
constexpr std::uint64_t operator""_M(unsigned long long n) {
  return n << 20;
}

}  // namespace faultline::alloc::toy
