// SPDX-License-Identifier: Apache-2.0
// The modelled platform: accesses to memory.
#include <algorithm>
#include <cstdio>

#include "allocator/platform/model.h"
#include "kernel_model/mm/data_caches.h"

namespace faultline::alloc {
namespace {

constexpr Centre kSignalDelivery{"do_signal", true};

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

// Model: while the handler runs, the signal is not blocked: a handler that touches what it
// has not made good calls itself.
bool Model::recovered(kernel::Signal signal, Addr at) {
  const BusHandler<Model>& handler = process_.bus_handler_;
  if (signal != kernel::Signal::kBus || handler.recover == nullptr) return false;
  task_.charge(kSignalDelivery, process_.process_.kernel().profile().costs.signal_delivery);
  const bool again = handler.recover(*this, at, handler.arg);
  flush();
  return again;
}

void Model::access(Addr at, kernel::Access access) {
  const PieceCache::Entry& e = entry(at);
  const bool write = access == kernel::Access::kWrite;
  if (at - (write ? e.writable : e.readable) < Window::kPiece) return;
  if ((at & kStorageBit) == 0) {
    flush();
    kernel::Signal signal = kernel::user_access(task_, process_.process_, {at}, access);
    while (signal != kernel::Signal::kNone) [[unlikely]] {
        if (!recovered(signal, at)) killed(signal, at, access);
        signal = kernel::user_access(task_, process_.process_, {at}, access);
      }
  } else if (at < kStorageStart || at >= kStorageEnd) {
    killed(kernel::Signal::kSegv, at, access);
  }
}

void Model::admit(Addr at, kernel::Access access) {
  this->access(at, access);
  const bool writable = access == kernel::Access::kWrite || (at & kStorageBit) != 0;
  if (Echoes& echoes = process_.echoes_; !echoes.empty()) {
    if (writable)
      echoes.before_write(at);
    else
      echoes.before_read(at);
  }
  PieceCache& pieces = own_pieces_ ? *own_pieces_ : process_.pieces_;
  pieces.fill(at, writable, process_.window_.back(at));
}

void Model::touch(Addr start, std::uint64_t length, Touch kind) {
  if (length == 0) return;
  flush();
  const auto access =
      kind == Touch::kWrite ? kernel::Access::kWrite : kernel::Access::kRead;
  access_all(start, length, access);
  const std::uint64_t page = facts().page_size;
  const std::uint64_t pages = (start + length - (start & ~(page - 1)) - 1) / page + 1;
  task_.charge(process_.process_.kernel().profile().costs.memory_access *
               static_cast<std::int64_t>(pages));
}

void Model::charge_bytes(std::uint64_t n, std::uint64_t rate) {
  __extension__ using Wide = unsigned __int128;
  constexpr Wide kPsPerSecond = 1'000'000'000'000;
  if (rate != 0)
    task_.charge(Duration::ps(static_cast<std::int64_t>(n * kPsPerSecond / rate)));
}

// Zeros over a piece without bytes on the host change nothing there.
void Model::set(Addr to, std::uint8_t byte, std::uint64_t n) {
  flush();
  kernel::DataCaches* const caches = caches_for(to, to, n);
  if (caches == nullptr) {
    set_bytes(to, byte, n, process_.process_.kernel().profile().costs.clear_rate);
    return;
  }
  // A page is written right after its fault has cleared it.
  for (std::uint64_t done = 0; done < n;) {
    const std::uint64_t part = caches->batch_from({to + done}, n - done);
    set_bytes(to + done, byte, part, 0);
    caches->set(task_, process_.process_, {to + done}, part, n);
    done += part;
  }
}

void Model::set_bytes(Addr to, std::uint8_t byte, std::uint64_t n, std::uint64_t rate) {
  while (n != 0) {
    const std::uint64_t part = std::min(n, room_in_piece(to));
    access(to, kernel::Access::kWrite);
    if (byte != 0 || process_.window_.backed(to) || !process_.echoes_.empty()) {
      admit(to, kernel::Access::kWrite);
      std::memset(process_.window_.host(to), byte, part);
    }
    charge_bytes(part, rate);
    to += part;
    n -= part;
  }
}

// Null: the access takes the same time wherever its data are.
kernel::DataCaches* Model::caches_for(Addr a, Addr b, std::uint64_t n) const {
  const bool user = ((a | b) & kStorageBit) == 0;
  return user && n >= Window::kPiece ? process_.process_.kernel().data_caches() : nullptr;
}

// Small copies are made.  Of a large one the pages are accessed and the time is taken, and
// the whole pieces become an echo of the source.
void Model::copy(Addr to, Addr from, std::uint64_t n) {
  constexpr std::uint64_t kLarge = 8 * Window::kPiece;
  constexpr std::uint64_t kCached = std::uint64_t{1} << 20;
  flush();
  const arch::Costs& costs = process_.process_.kernel().profile().costs;
  const bool cached = costs.cached_copy_rate != 0 && n <= kCached;
  kernel::DataCaches* const caches = caches_for(to, from, n);
  const std::uint64_t rate = caches != nullptr ? 0
                             : cached          ? costs.cached_copy_rate
                                               : costs.copy_rate;
  const bool apart = to + n <= from || from + n <= to;
  const bool user = ((to | from) & kStorageBit) == 0;
  if (n >= kLarge && apart && user) {
    copy_large(to, from, n);
    charge_bytes(n, rate);
  } else {
    copy_small(to, from, n, rate);
  }
  if (caches != nullptr) caches->copy(task_, process_.process_, {to}, {from}, n);
}

void Model::copy_small(Addr to, Addr from, std::uint64_t n, std::uint64_t rate) {
  for (std::uint64_t done = 0; done < n;) {
    const std::uint64_t part =
        std::min({n - done, room_in_piece(to + done), room_in_piece(from + done)});
    copy_bytes(to + done, from + done, part);
    charge_bytes(part, rate);
    done += part;
  }
}

// Within one piece each.  The store may fault and let others run, so that the source has to
// be looked at again.
void Model::copy_bytes(Addr to, Addr from, std::uint64_t n) {
  access(from, kernel::Access::kRead);
  access(to, kernel::Access::kWrite);
  admit(from, kernel::Access::kRead);
  admit(to, kernel::Access::kWrite);
  std::memcpy(process_.window_.host(to), process_.window_.host(from), n);
}

// Every page of the range, in order.  True: none faulted, no time has passed for others.
bool Model::access_all(Addr start, std::uint64_t n, kernel::Access access) {
  const std::uint64_t page = facts().page_size;
  const Addr end = start + n;
  kernel::VirtAddr at{start & ~(page - 1)};
  at = at + kernel::user_pass(task_, process_.process_, at, end - at.v, access);
  if (at.v >= end) return true;
  while (at.v < end) {
    const kernel::Signal signal =
        kernel::user_touch(task_, process_.process_, at, end - at.v, page, access, &at);
    if (signal == kernel::Signal::kNone) break;
    if (!recovered(signal, at.v)) killed(signal, at.v, access);
  }
  return false;
}

std::uint64_t Model::accessible(Addr start, std::uint64_t n, kernel::Access access) {
  return kernel::user_access_run(process_.process_, {start}, n, access).bytes;
}

// What was lost again while other pages came in is accessed once more.
void Model::copy_large(Addr to, Addr from, std::uint64_t n) {
  const auto real = [&](std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const std::uint64_t part =
          std::min({end - begin, room_in_piece(to + begin), room_in_piece(from + begin)});
      copy_bytes(to + begin, from + begin, part);
      begin += part;
    }
  };
  const bool source = access_all(from, n, kernel::Access::kRead);
  const bool all = access_all(to, n, kernel::Access::kWrite) && source;
  for (std::uint64_t done = 0; done < n;) {
    std::uint64_t part = n;
    if (!all) {
      part = accessible(from + done, n - done, kernel::Access::kRead);
      part = std::min(part, accessible(to + done, n - done, kernel::Access::kWrite));
    }
    if (part == 0) {
      access(from + done, kernel::Access::kRead);
      access(to + done, kernel::Access::kWrite);
      continue;
    }
    const Addr first = (to + done + Window::kPiece - 1) & ~(Window::kPiece - 1);
    const Addr last = (to + done + part) & ~(Window::kPiece - 1);
    if (first < last) {
      real(done, first - to);
      if (process_.echoes_.copy(first, last, from + (first - to)))
        process_.process_.access_caches.forget();
      real(last - to, done + part);
    } else {
      real(done, done + part);
    }
    done += part;
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
