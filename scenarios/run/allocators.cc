// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/allocators.h"

#include "allocator/ptmalloc/release.h"

namespace faultline::scenario {
namespace {

std::vector<std::string> ptmalloc_releases() {
  std::vector<std::string> names;
  for (const alloc::ReleaseProfile& r : alloc::releases()) names.emplace_back(r.name);
  return names;
}

}  // namespace

const std::vector<AllocatorDecl>& all_allocators() {
  static const std::vector<AllocatorDecl> table = {
      {"ptmalloc", ptmalloc_releases(), "2.26", {"environment", "tunables"}},
      {"jemalloc", {"3.3.1"}, "3.3.1", {"conf"}},
      {"jemalloc-5.3", {"5.3.0"}, "5.3.0", {"conf"}}};
  return table;
}

std::vector<std::string> allocator_names() {
  std::vector<std::string> names;
  for (const AllocatorDecl& a : all_allocators()) names.emplace_back(a.name);
  return names;
}

}  // namespace faultline::scenario
