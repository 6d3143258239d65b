// SPDX-License-Identifier: Apache-2.0
//
// Whole chunks: from the kernel, to and from the store of free ones; huge blocks, which are
// one or more chunks; and memory for the allocator's own data, cut from chunks and never
// freed.
//
// Stands for: src/chunk.c, chunk_mmap.c, base.c, huge.c (jemalloc 3.3.1).
#pragma once

#include "allocator/jemalloc/jemalloc_class.h"

namespace faultline::alloc {

template <Platform P>
auto Jemalloc<P>::chunks_by_size(P& p) const {
  const auto less = [&p](Addr a, Addr b) {
    const std::uint64_t size_a = get(p, a + Node::kSize), size_b = get(p, b + Node::kSize);
    if (size_a != size_b) return size_a < size_b;
    return get(p, a + Node::kAddress) < get(p, b + Node::kAddress);
  };
  return je::Tree<P, decltype(less)>(p, at(Root::kChunksBySize), Node::kSizeLink, less);
}

template <Platform P>
auto Jemalloc<P>::chunks_by_address(P& p) const {
  const auto less = [&p](Addr a, Addr b) {
    return get(p, a + Node::kAddress) < get(p, b + Node::kAddress);
  };
  return je::Tree<P, decltype(less)>(p, at(Root::kChunksByAddress), Node::kAddressLink,
                                     less);
}

template <Platform P>
auto Jemalloc<P>::huge_tree(P& p) const {
  const auto less = [&p](Addr a, Addr b) {
    return get(p, a + Node::kAddress) < get(p, b + Node::kAddress);
  };
  return je::Tree<P, decltype(less)>(p, at(Root::kHuge), Node::kAddressLink, less);
}

template <Platform P>
Addr Jemalloc<P>::base_alloc(P& p, std::uint64_t bytes) {
  constexpr std::uint64_t kCacheLine = 64;
  bytes = (bytes + kCacheLine - 1) & ~(kCacheLine - 1);
  lock(p, at(Root::kBaseLock), kBaseLockName);
  Addr found = get(p, at(Root::kBaseNext));
  if (found + bytes > get(p, at(Root::kBaseEnd))) {
    const std::uint64_t size = geometry_.round_to_chunk(bytes);
    // Not from the store of free chunks: that would ask for a node.
    found = chunk_map(p, size, geometry_.chunk);
    if (found != 0) set(p, at(Root::kBaseEnd), found + size);
  }
  if (found != 0) set(p, at(Root::kBaseNext), found + bytes);
  unlock(p, at(Root::kBaseLock), kBaseLockName);
  return found;
}

template <Platform P>
Addr Jemalloc<P>::node_alloc(P& p) {
  lock(p, at(Root::kBaseLock), kBaseLockName);
  const Addr kept = get(p, at(Root::kFreeNodes));
  if (kept != 0) set(p, at(Root::kFreeNodes), get(p, kept));
  unlock(p, at(Root::kBaseLock), kBaseLockName);
  return kept != 0 ? kept : base_alloc(p, Node::kBytes);
}

template <Platform P>
void Jemalloc<P>::node_dalloc(P& p, Addr node) {
  lock(p, at(Root::kBaseLock), kBaseLockName);
  set(p, node, get(p, at(Root::kFreeNodes)));
  set(p, at(Root::kFreeNodes), node);
  unlock(p, at(Root::kBaseLock), kBaseLockName);
}

// `zero`: in, the chunks shall be zero; out, they are.
template <Platform P>
Addr Jemalloc<P>::chunk_alloc(P& p, std::uint64_t size, std::uint64_t alignment,
                              bool& zero) {
  const Frame frame(p, je::places::kChunkAlloc);
  p.cycles(je::costs::kChunk);
  if (const Addr again = chunk_recycle(p, size, alignment, zero)) return again;
  const Addr fresh = chunk_map(p, size, alignment);
  zero = fresh != 0;
  return fresh;
}

// The smallest stretch that is sure to hold the aligned size; what is over goes back.
template <Platform P>
Addr Jemalloc<P>::chunk_recycle(P& p, std::uint64_t size, std::uint64_t alignment,
                                bool& zero) {
  const std::uint64_t needed = size + alignment - geometry_.chunk;
  if (needed < size) return 0;
  lock(p, at(Root::kChunksLock), kChunksLockName);
  const Addr node =
      chunks_by_size(p).first_not([&](Addr n) { return get(p, n + Node::kSize) < needed; });
  if (node == 0) {
    unlock(p, at(Root::kChunksLock), kChunksLockName);
    return 0;
  }
  const Addr start = get(p, node + Node::kAddress);
  const std::uint64_t whole = get(p, node + Node::kSize);
  const Kind kind{get(p, node + Node::kKind)};
  const Addr found = (start + alignment - 1) & ~(alignment - 1);
  const std::uint64_t lead = found - start, trail = whole - lead - size;
  erase_free(p, node);
  bool node_used = false;
  if (lead != 0) {
    set(p, node + Node::kSize, lead);
    insert_free(p, node);
    node_used = true;
  }
  unlock(p, at(Root::kChunksLock), kChunksLockName);
  if (trail != 0) {
    const Addr rest = node_used ? node_alloc(p) : node;
    if (rest != 0) {  // else the rest is lost
      set(p, rest + Node::kAddress, found + size);
      set(p, rest + Node::kSize, trail);
      set(p, rest + Node::kKind, static_cast<std::uint64_t>(kind));
      lock(p, at(Root::kChunksLock), kChunksLockName);
      insert_free(p, rest);
      unlock(p, at(Root::kChunksLock), kChunksLockName);
      node_used = true;
    }
  }
  if (!node_used) node_dalloc(p, node);
  if (kind == Kind::kVolatile) unmark_volatile(p, found, size);
  if (zero && kind != Kind::kZeroed) p.set(found, 0, size);
  zero = zero || kind == Kind::kZeroed;
  return found;
}

// Aligned address space: where the kernel puts it, if that happens to be aligned, else out
// of more than is needed.
template <Platform P>
Addr Jemalloc<P>::chunk_map(P& p, std::uint64_t size, std::uint64_t alignment) {
  constexpr unsigned kProt = sys::kProtRead | sys::kProtWrite;
  constexpr unsigned kFlags = sys::kMapPrivate | sys::kMapAnonymous;
  const SysValue first = p.mmap(0, size, kProt, kFlags);
  if (!first.ok()) return 0;
  if ((first.value & (alignment - 1)) == 0) return first.value;
  p.munmap(first.value, size);
  const std::uint64_t larger = size + alignment - geometry_.page;
  if (larger < size) return 0;
  const SysValue area = p.mmap(0, larger, kProt, kFlags);
  if (!area.ok()) return 0;
  const Addr found = (area.value + alignment - 1) & ~(alignment - 1);
  const std::uint64_t lead = found - area.value, trail = larger - lead - size;
  if (lead != 0) p.munmap(area.value, lead);
  if (trail != 0) p.munmap(found + size, trail);
  return found;
}

template <Platform P>
typename Jemalloc<P>::Kind Jemalloc<P>::give_back_chunk(P& p, Addr chunk,
                                                        std::uint64_t size) {
  const bool lazily = settings_.rule == je::PurgeRule::kRatio;
  if (settings_.purge == je::Purge::kNone) return Kind::kOld;
  const Given given = give_back(p, chunk, size, lazily);
  if (given.state == State::kVolatile) return Kind::kVolatile;
  return given.unzeroed != 0 ? Kind::kOld : Kind::kZeroed;
}

template <Platform P>
void Jemalloc<P>::chunk_dealloc(P& p, Addr chunk, std::uint64_t size) {
  const Frame frame(p, je::places::kChunkDealloc);
  p.cycles(je::costs::kChunk);
  if (settings_.munmap) {
    // Marks outlive a mapping.
    if (settings_.purge == je::Purge::kVrange && !no_vrange_)
      unmark_volatile(p, chunk, size);
    p.munmap(chunk, size);
    return;
  }
  chunk_record(p, chunk, size, give_back_chunk(p, chunk, size));
}

template <Platform P>
void Jemalloc<P>::insert_free(P& p, Addr node) {
  chunks_by_size(p).insert(node);
  chunks_by_address(p).insert(node);
}

template <Platform P>
void Jemalloc<P>::erase_free(P& p, Addr node) {
  chunks_by_size(p).erase(node);
  chunks_by_address(p).erase(node);
}

// Into the store, joined with neighbours of the same kind.
template <Platform P>
void Jemalloc<P>::chunk_record(P& p, Addr chunk, std::uint64_t size, Kind kind) {
  // Before the lock is taken: a node may need a chunk of the allocator's own.
  const Addr node = node_alloc(p);
  if (node == 0) return;  // these chunks are lost
  lock(p, at(Root::kChunksLock), kChunksLockName);
  const auto tree = chunks_by_address(p);
  const auto is_kind = [&](Addr n) {
    return n != 0 && Kind{get(p, n + Node::kKind)} == kind;
  };
  Addr spent[2] = {};
  const Addr after =
      tree.first_not([&](Addr n) { return get(p, n + Node::kAddress) < chunk; });
  if (is_kind(after) && get(p, after + Node::kAddress) == chunk + size) {
    erase_free(p, after);
    size += get(p, after + Node::kSize);
    spent[0] = after;
  }
  const Addr before =
      tree.last_before([&](Addr n) { return get(p, n + Node::kAddress) < chunk; });
  if (is_kind(before) &&
      get(p, before + Node::kAddress) + get(p, before + Node::kSize) == chunk) {
    erase_free(p, before);
    chunk = get(p, before + Node::kAddress);
    size += get(p, before + Node::kSize);
    spent[1] = before;
  }
  set(p, node + Node::kAddress, chunk);
  set(p, node + Node::kSize, size);
  set(p, node + Node::kKind, static_cast<std::uint64_t>(kind));
  insert_free(p, node);
  unlock(p, at(Root::kChunksLock), kChunksLockName);
  for (const Addr n : spent)
    if (n != 0) node_dalloc(p, n);
}

template <Platform P>
Addr Jemalloc<P>::huge_alloc(P& p, std::uint64_t size, std::uint64_t alignment, bool zero) {
  const Frame frame(p, je::places::kHugeMalloc);
  const std::uint64_t whole = geometry_.round_to_chunk(size);
  if (whole < size) return 0;
  const Addr node = node_alloc(p);
  if (node == 0) return 0;
  bool zeroed = zero;
  const Addr found = chunk_alloc(p, whole, std::max(alignment, geometry_.chunk), zeroed);
  if (found == 0) {
    node_dalloc(p, node);
    return 0;
  }
  set(p, node + Node::kAddress, found);
  set(p, node + Node::kSize, whole);
  lock(p, at(Root::kHugeLock), kHugeLockName);
  huge_tree(p).insert(node);
  unlock(p, at(Root::kHugeLock), kHugeLockName);
  return found;
}

template <Platform P>
void Jemalloc<P>::huge_dalloc(P& p, Addr mem) {
  const Frame frame(p, je::places::kHugeDalloc);
  lock(p, at(Root::kHugeLock), kHugeLockName);
  const auto tree = huge_tree(p);
  const Addr node =
      tree.first_not([&](Addr n) { return get(p, n + Node::kAddress) < mem; });
  const std::uint64_t size = get(p, node + Node::kSize);
  huge_tree(p).erase(node);
  unlock(p, at(Root::kHugeLock), kHugeLockName);
  chunk_dealloc(p, mem, size);
  node_dalloc(p, node);
}

template <Platform P>
std::uint64_t Jemalloc<P>::huge_size(P& p, Addr mem) const {
  lock(p, at(Root::kHugeLock), kHugeLockName);
  const Addr node =
      huge_tree(p).first_not([&](Addr n) { return get(p, n + Node::kAddress) < mem; });
  const std::uint64_t size = get(p, node + Node::kSize);
  unlock(p, at(Root::kHugeLock), kHugeLockName);
  return size;
}

}  // namespace faultline::alloc
