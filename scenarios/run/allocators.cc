// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/allocators.h"

namespace faultline::scenario {

const std::vector<AllocatorDecl>& all_allocators() {
  static const std::vector<AllocatorDecl> table = {{"ptmalloc", {"2.26"}}};
  return table;
}

std::vector<std::string> allocator_names() {
  std::vector<std::string> names;
  for (const AllocatorDecl& a : all_allocators()) names.emplace_back(a.name);
  return names;
}

}  // namespace faultline::scenario
