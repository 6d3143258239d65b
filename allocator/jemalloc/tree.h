// SPDX-License-Identifier: Apache-2.0
//
// An ordered tree whose nodes lie in the process's memory: two words in each thing that is
// ordered, left and right, and one word that holds the root.
//
// Stands for: rb.h of jemalloc.  Model: the same order and the same words, but a treap,
// whose shape follows from the nodes' addresses.
#pragma once

#include <cstdint>

#include "allocator/platform.h"

namespace faultline::alloc::je {

// `Less`: less(a, b) of two nodes' addresses; no two nodes are equal.
template <Platform P, typename Less>
class Tree {
 public:
  // `root`: address of the root's word; `link`: where in a node left and right lie.
  Tree(P& p, Addr root, std::uint64_t link, Less less)
      : p_(p), root_(root), link_(link), less_(less) {}

  [[nodiscard]] bool empty() const { return get(root_) == 0; }
  void insert(Addr node) {
    Addr at = root_;
    Addr here = get(at);
    while (here != 0 && priority(here) > priority(node)) {
      at = less_(node, here) ? left(here) : right(here);
      here = get(at);
    }
    set(at, node);
    Addr smaller = left(node), larger = right(node);
    while (here != 0) {  // what was below goes to either side
      if (less_(here, node)) {
        set(smaller, here);
        smaller = right(here);
        here = get(smaller);
      } else {
        set(larger, here);
        larger = left(here);
        here = get(larger);
      }
    }
    set(smaller, 0);
    set(larger, 0);
  }
  void erase(Addr node) {
    Addr at = root_;
    for (Addr here = get(at); here != node; here = get(at))
      at = less_(node, here) ? left(here) : right(here);
    Addr a = get(left(node)), b = get(right(node));
    while (a != 0 && b != 0) {
      if (priority(a) > priority(b)) {
        set(at, a);
        at = right(a);
        a = get(at);
      } else {
        set(at, b);
        at = left(b);
        b = get(at);
      }
    }
    set(at, a != 0 ? a : b);
  }
  // 0 if there is none.
  [[nodiscard]] Addr first() const {
    return first_not([](Addr) { return false; });
  }
  // The first node that doesn't lie before what is sought.
  template <typename Before>
  [[nodiscard]] Addr first_not(Before before) const {
    Addr found = 0;
    for (Addr here = get(root_); here != 0;) {
      if (before(here)) {
        here = get(right(here));
      } else {
        found = here;
        here = get(left(here));
      }
    }
    return found;
  }
  // The last node that lies before it.
  template <typename Before>
  [[nodiscard]] Addr last_before(Before before) const {
    Addr found = 0;
    for (Addr here = get(root_); here != 0;) {
      if (before(here)) {
        found = here;
        here = get(right(here));
      } else {
        here = get(left(here));
      }
    }
    return found;
  }
  // The first node of which that is true.
  template <typename Is>
  [[nodiscard]] Addr find_first(Is is) const {
    return find_below(get(root_), is);
  }
  // In order; for checks.
  template <typename Visit>
  void for_each(Visit visit) const {
    visit_below(get(root_), visit);
  }

 private:
  [[nodiscard]] Addr get(Addr at) const { return p_.template load<Addr>(at); }
  void set(Addr at, Addr node) { p_.template store<Addr>(at, node); }
  [[nodiscard]] Addr left(Addr node) const { return node + link_; }
  [[nodiscard]] Addr right(Addr node) const { return node + link_ + sizeof(Addr); }
  [[nodiscard]] static std::uint64_t priority(Addr node) {
    std::uint64_t z = (node ^ node >> 30) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ z >> 27) * 0x94d0'49bb'1331'11eb;
    return z ^ z >> 31;
  }
  template <typename Is>
  [[nodiscard]] Addr find_below(Addr node, Is& is) const {
    if (node == 0) return 0;
    if (const Addr found = find_below(get(left(node)), is)) return found;
    return is(node) ? node : find_below(get(right(node)), is);
  }
  template <typename Visit>
  void visit_below(Addr node, Visit& visit) const {
    if (node == 0) return;
    visit_below(get(left(node)), visit);
    visit(node);
    visit_below(get(right(node)), visit);
  }

  P& p_;
  Addr root_;
  std::uint64_t link_;
  Less less_;
};

}  // namespace faultline::alloc::je
