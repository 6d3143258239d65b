// SPDX-License-Identifier: Apache-2.0
//
// The table of workloads and their parameters.  A new one adds a row here and a line in
// workloads/dispatch.h.
#include <iterator>
#include <utility>

#include "scenarios/workloads/workload.h"
#include "sim/check.h"

namespace faultline::workloads {
namespace {

// The limits are those of the program: 63-bit sizes end every scheme before 64 blocks.
constexpr ParamDecl kMallocstress[] = {
    {"threads", ParamType::kCount, 60, 1, 4096,
     "threads, all released together (NUM_THREADS)"},
    {"loops", ParamType::kCount, 100, 1, 1'000'000, "rounds of each thread (NUM_LOOPS)"},
    {"maxptrs", ParamType::kCount, 50, 1, 1000, "most blocks in one round (MAXPTRS)"},
};

// libstdc++ 12 gives reserve(10'000'000) the first prime of its table that is as large.
constexpr ParamDecl kHugepages[] = {
    {"elements", ParamType::kCount, 10'000'000, 1, std::int64_t{1} << 40,
     "keys inserted: 0, 1, 2 …"},
    {"buckets", ParamType::kCount, 10'352'717, 1, std::int64_t{1} << 40,
     "of the array, 8 bytes each"},
    {"startup_pages", ParamType::kCount, 126, 0, 1'000'000,
     "pages that loader and libraries touch before main (126: Debian 12, x86-64)"},
    {"brk_shift", ParamType::kBytes, 0, 0, std::int64_t{1} << 30,
     "how much higher the break starts (a multiple of the page), as randomisation would "
     "have it"},
    {"mmap_shift", ParamType::kBytes, 0, 0, std::int64_t{1} << 40,
     "how much lower mappings start, likewise"},
};
constexpr CountDecl kHugepagesCounts[] = {{"inserted", "keys inserted"}};

constexpr ParamDecl kOps[] = {
    {"program", ParamType::kOps, 0, 0, 0,
     "the operations, one a line (scenarios/workloads/ops_program.h)"},
    {"blocks", ParamType::kCount, 1 << 20, 1, 1 << 26, "most blocks alive at once"},
};
constexpr CountDecl kOpsCounts[] = {
    {"mallocs", "calls of malloc, calloc, memalign, realloc"},
    {"refused-mallocs", "of these, those that answered NULL"},
    {"frees", "calls of free"},
};

constexpr ParamDecl kSpecLike[] = {
    {"heap", ParamType::kBytes, std::int64_t{100'000'000}, 1 << 16, std::int64_t{1} << 36,
     "bytes that the objects take"},
    {"laps", ParamType::kCount, 3, 1, 1'000'000, "rounds through all objects"},
    {"work", ParamType::kCount, 1800, 0, 1'000'000,
     "instructions (or what a cache miss takes in their place) at each object"},
};
constexpr CountDecl kSpecLikeCounts[] = {{"objects", "objects allocated"},
                                         {"steps", "links followed"}};

constexpr std::string_view kAccess[] = {"write", "read"};
constexpr ParamDecl kTouch[] = {
    {"map", ParamType::kBytes, std::int64_t{1} << 30, 1, std::int64_t{1} << 46,
     "bytes to map"},
    {"stride", ParamType::kBytes, 4096, 1, std::int64_t{1} << 46,
     "distance of two touches"},
    {"count", ParamType::kCount, 0, 0, std::int64_t{1} << 40, "touches; 0: as many as fit"},
    {"access", ParamType::kChoice, 0, 0, 0, "kind of access", kAccess},
};

constexpr CountDecl kMallocstressCounts[] = {
    {"mallocs", "calls of malloc"},
    {"refused-mallocs", "calls of malloc that answered NULL"},
    {"frees", "calls of free"},
};
constexpr CountDecl kTouchCounts[] = {{"touches", "bytes touched"}};

constexpr WorkloadDecl kAll[] = {
    {"hugepages",
     "fill a std::unordered_map and destroy it: the test program of glibc's huge page "
     "series",
     true, kHugepages, kHugepagesCounts},
    {"mallocstress",
     "LTP's mallocstress: threads allocate blocks of growing size, write one word each, "
     "free them",
     true, kMallocstress, kMallocstressCounts},
    {"ops", "play a list of allocator operations", true, kOps, kOpsCounts},
    {"spec-like",
     "follow links through small objects in random order: an analogue of programs whose "
     "time depends on the TLB",
     true, kSpecLike, kSpecLikeCounts},
    {"touch", "map one area, touch one byte at a regular distance, no allocator", false,
     kTouch, kTouchCounts},
};

}  // namespace

const ParamDecl* WorkloadDecl::param(std::string_view wanted) const {
  for (const ParamDecl& p : params)
    if (p.name == wanted) return &p;
  return nullptr;
}

std::span<const WorkloadDecl> all() {
  return kAll;
}

const WorkloadDecl* find(std::string_view name) {
  for (const WorkloadDecl& w : kAll)
    if (w.name == name) return &w;
  return nullptr;
}

Params::Params(const WorkloadDecl& decl) : decl_(&decl) {
  for (const ParamDecl& p : decl.params) values_.emplace(p.name, p.default_value);
}

void Params::set(std::string_view name, std::int64_t value) {
  const auto it = values_.find(name);
  FAULTLINE_CHECK(it != values_.end());
  it->second = value;
}

std::int64_t Params::number(std::string_view name) const {
  const auto it = values_.find(name);
  FAULTLINE_CHECK(it != values_.end());
  return it->second;
}

std::uint64_t Params::bytes(std::string_view name) const {
  return static_cast<std::uint64_t>(number(name));
}

void Params::set_text(std::string_view name, std::string text) {
  FAULTLINE_CHECK(values_.contains(name));
  texts_.insert_or_assign(std::string(name), std::move(text));
}

std::string_view Params::text(std::string_view name) const {
  const auto it = texts_.find(name);
  return it == texts_.end() ? std::string_view{} : std::string_view(it->second);
}

std::string_view Params::choice(std::string_view name) const {
  const ParamDecl* p = decl_->param(name);
  FAULTLINE_CHECK(p != nullptr);
  return p->choices[static_cast<std::size_t>(number(name))];
}

}  // namespace faultline::workloads
