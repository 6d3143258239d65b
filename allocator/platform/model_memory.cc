// SPDX-License-Identifier: Apache-2.0
// The modelled platform: accesses to memory.
#include <algorithm>
#include <cstdio>

#include "allocator/platform/model.h"

namespace faultline::alloc {
namespace {

const char* signal_name(kernel::Signal signal) {
  switch (signal) {
    case kernel::Signal::kSegv:
      return "SIGSEGV";
    case kernel::Signal::kBus:
      return "SIGBUS";
    case kernel::Signal::kKill:
      return "SIGKILL (out of memory)";
    case kernel::Signal::kNone:
      break;
  }
  return "no signal";
}

}  // namespace

void Model::killed(kernel::Signal signal, Addr at, kernel::Access access) {
  char address[32];
  std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(at));
  throw ProgramKilled(
      signal, at,
      "process " + process_.process_.name() + ", " + task_.name() + ": " +
          signal_name(signal) +
          (access == kernel::Access::kWrite ? ", writing at " : ", reading at ") + address);
}

void Model::access(Addr at, kernel::Access access) {
  const PieceCache::Entry& e = entry(at);
  const bool write = access == kernel::Access::kWrite;
  if (at - (write ? e.writable : e.readable) < Window::kPiece) return;
  if ((at & kStorageBit) == 0) {
    flush();
    const kernel::Signal signal =
        kernel::user_access(task_, process_.process_, {at}, access);
    if (signal != kernel::Signal::kNone) killed(signal, at, access);
  } else if (at < kStorageStart || at >= kStorageEnd) {
    killed(kernel::Signal::kSegv, at, access);
  }
}

void Model::admit(Addr at, kernel::Access access) {
  this->access(at, access);
  const bool writable = access == kernel::Access::kWrite || (at & kStorageBit) != 0;
  PieceCache& pieces = own_pieces_ ? *own_pieces_ : process_.pieces_;
  pieces.fill(at, writable, process_.window_.back(at));
}

void Model::touch(Addr start, std::uint64_t length, Touch kind) {
  if (length == 0) return;
  flush();
  const auto access =
      kind == Touch::kWrite ? kernel::Access::kWrite : kernel::Access::kRead;
  const Addr first = start & ~(facts().page_size - 1);
  const kernel::Signal signal = kernel::user_touch(
      task_, process_.process_, {first}, start + length - first, facts().page_size, access);
  if (signal != kernel::Signal::kNone) killed(signal, start, access);
  const std::uint64_t pages = (start + length - first - 1) / facts().page_size + 1;
  task_.charge(process_.process_.kernel().profile().costs.memory_access *
               static_cast<std::int64_t>(pages));
}

void Model::charge_bytes(std::uint64_t n, std::uint64_t rate) {
  constexpr std::uint64_t kPsPerSecond =
      1'000'000'000'000;  // n is a piece at most: no overflow
  if (rate != 0)
    task_.charge(Duration::ps(static_cast<std::int64_t>(n * kPsPerSecond / rate)));
}

// Zeros over a piece without bytes on the host change nothing there.
void Model::set(Addr to, std::uint8_t byte, std::uint64_t n) {
  flush();
  while (n != 0) {
    const std::uint64_t part = std::min(n, room_in_piece(to));
    access(to, kernel::Access::kWrite);
    if (byte != 0 || process_.window_.backed(to)) {
      admit(to, kernel::Access::kWrite);
      std::memset(process_.window_.host(to), byte, part);
    }
    charge_bytes(part, process_.process_.kernel().profile().costs.clear_rate);
    to += part;
    n -= part;
  }
}

void Model::copy(Addr to, Addr from, std::uint64_t n) {
  flush();
  while (n != 0) {
    const std::uint64_t part = std::min({n, room_in_piece(to), room_in_piece(from)});
    access(from, kernel::Access::kRead);
    const bool zeros = !process_.window_.backed(from);
    if (zeros) {
      set(to, 0, part);
    } else {
      // The store may fault and let others run, so that the source has to be looked at
      // again.
      access(to, kernel::Access::kWrite);
      admit(from, kernel::Access::kRead);
      admit(to, kernel::Access::kWrite);
      std::memcpy(process_.window_.host(to), process_.window_.host(from), part);
      charge_bytes(part, process_.process_.kernel().profile().costs.copy_rate);
    }
    to += part;
    from += part;
    n -= part;
  }
}

// Makes the word writable and this task the earliest one, both at once: nobody comes
// between what is read and what is written next.
void Model::own_word(Addr at) {
  const auto writable = [&] { return at - entry(at).writable < Window::kPiece; };
  flush();
  task_.charge(process_.process_.kernel().profile().costs.lock_atomic);
  do {
    admit(at, kernel::Access::kWrite);
    task_.sync();
  } while (!writable());
}

std::uint64_t Model::atomic_add(Addr at, std::uint64_t n) {
  own_word(at);
  const auto old = load<std::uint64_t>(at);
  store(at, old + n);
  return old;
}

std::uint64_t Model::atomic_exchange(Addr at, std::uint64_t v) {
  own_word(at);
  const auto old = load<std::uint64_t>(at);
  store(at, v);
  return old;
}

bool Model::compare_exchange(Addr at, std::uint64_t expected, std::uint64_t desired) {
  own_word(at);
  if (load<std::uint64_t>(at) != expected) return false;
  store(at, desired);
  return true;
}

}  // namespace faultline::alloc
