// SPDX-License-Identifier: Apache-2.0
//
// The table of workloads and their parameters.  A new one adds a row here and a line in
// workloads/dispatch.h.
#include <iterator>
#include <utility>

#include "scenarios/workloads/give_back_pages.h"
#include "scenarios/workloads/vrange_cache.h"
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

constexpr std::string_view kMmapUse[] = {"allocator", "always", "never"};
constexpr std::string_view kNoYes[] = {"no", "yes"};
constexpr std::string_view kYesNo[] = {"yes", "no"};
constexpr std::string_view kSearch[] = {"binary", "linear"};
constexpr std::string_view kRandom[] = {"constant", "works"};
constexpr ParamDecl kEbizzy[] = {
    {"threads", ParamType::kCount, 0, 0, 4096, "-t; 0: two a CPU"},
    {"seconds", ParamType::kCount, 10, 1, 100'000, "-S: how long it runs"},
    {"chunks", ParamType::kCount, 10, 1, 1'000'000, "-n: chunks of records"},
    {"chunk_size", ParamType::kBytes, 524'288, 8, std::int64_t{1} << 40,
     "-s: bytes of a chunk, 8 a record"},
    {"mmap", ParamType::kChoice, 0, 0, 0,
     "always: -m, mmap and munmap for each block; never: -M, mallopt(M_MMAP_MAX, 0)",
     kMmapUse},
    {"permissions", ParamType::kChoice, 0, 0, 0, "-p: every second chunk becomes read-only",
     kNoYes},
    {"page_padding", ParamType::kChoice, 0, 0, 0,
     "-P: a page is allocated between chunks and freed", kNoYes},
    {"random_size", ParamType::kChoice, 0, 0, 0, "-R: copy a random part of the chunk",
     kNoYes},
    {"touch_only", ParamType::kChoice, 0, 0, 0,
     "-T: write a byte a page instead of copying and searching", kNoYes},
    {"lib_memcpy", ParamType::kChoice, 0, 0, 0, "no: -l, the program's own loop", kYesNo},
    {"search", ParamType::kChoice, 0, 0, 0, "linear: -z", kSearch},
    {"random", ParamType::kChoice, 0, 0, 0,
     "constant: the program's own defect, always the same chunk and key; works: as meant",
     kRandom},
};
constexpr CountDecl kEbizzyCounts[] = {
    {"records", "chunks copied, searched and freed"},
    {"records-per-s", "of all threads together", true},
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
    {"forks", "calls of fork; what the children do is not counted here"},
    {"refused-forks", "of these, those that failed"},
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

constexpr ParamDecl kGiveBack[] = {
    {"policy", ParamType::kChoice, 1, 0, 0, "how memory is given back", kGiveBackPolicies},
    {"heap", ParamType::kBytes, std::int64_t{64} << 20, 1, std::int64_t{1} << 40,
     "written once at first"},
    {"block", ParamType::kBytes, std::int64_t{1} << 20, 16, std::int64_t{1} << 40,
     "the unit in which the heap is free or in use"},
    {"run", ParamType::kCount, 1, 1, 1 << 20, "free blocks side by side"},
    {"every", ParamType::kCount, 1, 1, 1 << 20, "such a run begins every so many blocks"},
    {"rounds", ParamType::kCount, 10, 0, 1 << 30, "times that all runs are given back"},
    {"rewrite", ParamType::kChoice, 0, 0, 0, "each run is written again after that",
     kYesNo},
    {"pause_ms", ParamType::kCount, 0, 0, 1'000'000, "sleep after the last time"},
    {"reuse", ParamType::kChoice, 1, 0, 0, "after the sleep, all runs are written again",
     kYesNo},
    {"spinners", ParamType::kCount, 0, 0, 4096, "threads that compute meanwhile"},
};
constexpr CountDecl kGiveBackCounts[] = {
    {"calls", "calls that gave memory back, in the rounds"},
    {"pages-given", "pages of these calls"},
    {"runs-lost", "runs whose loss the kernel told at the next use"},
    {"free-kib", "of the heap that is free at the end"},
    {"given-kib", "of this the whole pages, which were given back"},
};

constexpr ParamDecl kMadvFreePressure[] = {
    {"policy", ParamType::kChoice, 1, 0, 0, "how memory is given back", kGiveBackPolicies},
    {"block", ParamType::kBytes, std::int64_t{512} << 20, 4096, std::int64_t{1} << 40,
     "filled in each round"},
    {"rounds", ParamType::kCount, 5, 1, 1'000'000, "times"},
    {"pause_ms", ParamType::kCount, 0, 0, 1'000'000, "sleep after each"},
};
constexpr CountDecl kMadvFreePressureCounts[] = {
    {"rounds", "of all processes"},
    {"blocks-lost", "blocks whose loss the kernel told at the next use"},
};

constexpr ParamDecl kVrangeCache[] = {
    {"policy", ParamType::kChoice, 2, 0, 0, "what the cache is between uses",
     kCachePolicies},
    {"entries", ParamType::kCount, 1000, 1, 1 << 26, "different entries"},
    {"entry", ParamType::kBytes, std::int64_t{64} << 10, 4096, std::int64_t{1} << 40,
     "of each; a multiple of the page"},
    {"requests", ParamType::kCount, 100'000, 1, std::int64_t{1} << 40, "in all"},
    {"make_cycles", ParamType::kCount, 1'000'000, 0, std::int64_t{1} << 40,
     "instructions to make an entry"},
    {"pause_us", ParamType::kCount, 0, 0, 1'000'000, "sleep after each request"},
};
constexpr CountDecl kVrangeCacheCounts[] = {
    {"requests", "served"},
    {"entries-made", "made, for the first time or again"},
    {"entries-lost", "found purged"},
};

constexpr ParamDecl kVrangeMicro[] = {
    {"policy", ParamType::kChoice, 3, 0, 0, "how memory is given back", kGiveBackPolicies},
    {"threads", ParamType::kCount, 12, 1, 4096, "one a CPU"},
    {"blocks", ParamType::kCount, 10, 1, 1 << 20, "of each thread"},
    {"block", ParamType::kBytes, std::int64_t{8} << 20, 4096, std::int64_t{1} << 40,
     "filled at a time"},
    {"rounds", ParamType::kCount, 100, 1, 1'000'000, "over all blocks"},
};
constexpr CountDecl kVrangeMicroCounts[] = {
    {"blocks-filled", "of all threads"},
    {"blocks-lost", "blocks whose loss the kernel told at the next use"},
};

constexpr CountDecl kMallocstressCounts[] = {
    {"mallocs", "calls of malloc"},
    {"refused-mallocs", "calls of malloc that answered NULL"},
    {"frees", "calls of free"},
};
constexpr CountDecl kTouchCounts[] = {{"touches", "bytes touched"}};

constexpr WorkloadDecl kAll[] = {
    {"ebizzy",
     "ebizzy 0.3: threads copy a chunk of records into a fresh block, search it, free it",
     true, kEbizzy, kEbizzyCounts},
    {"give-back",
     "give parts of a heap back and use them again: what it costs and what stays resident",
     false, kGiveBack, kGiveBackCounts},
    {"hugepages",
     "fill a std::unordered_map and destroy it: the test program of glibc's huge page "
     "series",
     true, kHugepages, kHugepagesCounts},
    {"madv-free-pressure",
     "fill a block and give it back, in several processes that need more than there is",
     false, kMadvFreePressure, kMadvFreePressureCounts},
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
    {"vrange-cache", "a cache in volatile memory that makes again what was purged", false,
     kVrangeCache, kVrangeCacheCounts},
    {"vrange-micro",
     "threads fill blocks and give each back: the micro test of the volatile-range patches",
     false, kVrangeMicro, kVrangeMicroCounts},
};

}  // namespace

const ParamDecl* WorkloadDecl::param(std::string_view wanted) const {
  for (const ParamDecl& p : params)
    if (p.name == wanted) return &p;
  return nullptr;
}

const CountDecl* WorkloadDecl::rate() const {
  for (const CountDecl& c : counts)
    if (c.is_rate) return &c;
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
