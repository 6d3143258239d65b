// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/mm/data_caches.h"

#include <algorithm>

#include "kernel_model/kernel.h"
#include "kernel_model/mm/clear_page.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/phys/phys_mem.h"

namespace faultline::kernel {
namespace {

LastLevelCache::Shape shape_of(const arch::Profile& profile) {
  const arch::Llc& llc = profile.llc;
  const std::uint64_t way = llc.bytes / llc.ways;
  return {.sets = static_cast<std::uint32_t>(way / profile.geometry.page_size()),
          .ways = llc.ways,
          .slices = llc.slices,
          .page_shift = profile.geometry.page_shift,
          .random = llc.placement == arch::Llc::Placement::kRandom};
}

}  // namespace

// The pages from `at` on that lie below one entry of the PMD level, `end` at most: of a
// table, of a huge page, or without either.
class DataCaches::Span {
 public:
  Span(PageTables& pages, VirtAddr at, VirtAddr end)
      : at_(at),
        stop_(std::min(pages.pmd_range(at).end, end)),
        size_(pages.geometry().page_size()),
        first_{at.v & ~(size_ - 1)} {
    const PageTableTree& tree = pages.tree();
    if (const Table* const table = tree.find_pte_table(at)) {
      entries_ = table->entry + tree.shape(table->level).index(at);
      return;
    }
    huge_ = tree.leaf_at(at);
    if (huge_.is_leaf())
      huge_ = huge_.at_subpage((first_ - pages.pmd_range(at).start) / size_);
  }
  [[nodiscard]] VirtAddr stop() const { return stop_; }
  [[nodiscard]] std::uint64_t pages() const { return (stop_ - first_ + size_ - 1) / size_; }
  // What is asked for of pages [from, to).
  [[nodiscard]] std::uint64_t bytes(std::uint64_t from, std::uint64_t to) const {
    return std::min(first_ + to * size_, stop_) - std::max(first_ + from * size_, at_);
  }
  // The frame of its own that a page is mapped for; kNoFrame: the zero page, hugetlb,
  // nothing any more.
  [[nodiscard]] std::uint32_t frame(std::uint64_t page) const {
    const Pte entry = entries_ != nullptr ? entries_[page]
                      : huge_.is_leaf()   ? huge_.at_subpage(page)
                                          : huge_;
    constexpr std::uint64_t kMask = Pte::kPresent | Pte::kZero | Pte::kHugetlb;
    return (entry.raw() & kMask) == Pte::kPresent ? entry.pfn().v
                                                  : LastLevelCache::kNoFrame;
  }

 private:
  VirtAddr at_, stop_;
  std::uint64_t size_;
  VirtAddr first_;
  const Pte* entries_ = nullptr;
  Pte huge_;
};

DataCaches::DataCaches(Kernel& kernel)
    : kernel_(kernel), page_size_(kernel.profile().geometry.page_size()) {
  for (int node = 0; node < kernel.phys().nodes(); ++node)
    caches_.emplace_back(kernel.phys().frames(), shape_of(kernel.profile()));
  const int threads = kernel.engine().shape().threads_per_core;
  if (threads == 1) return;
  const std::uint64_t rate = std::max(copy_rate(), kernel.profile().costs.clear_rate);
  for (int core = 0; core < static_cast<int>(kernel.profile().cpus) / threads; ++core)
    ports_.push_back(std::make_unique<SharedBandwidth>(kernel.engine(), rate));
  filling_.resize(ports_.size());
}

void DataCaches::fill(Pfn frame, std::uint64_t bytes, Bill& bill) {
  bill.fills[static_cast<std::size_t>(kernel_.phys().node_of(frame))] += bytes;
  bill.all_traffic += bytes;
}

void DataCaches::write_back(Pfn frame, Bill& bill) {
  ++stats_.writebacks;
  bill.writebacks[static_cast<std::size_t>(kernel_.phys().node_of(frame))] += page_size_;
  bill.all_traffic += page_size_;
}

// One copy of a page may be written, or many read.  Model: what another cache holds is not
// handed over but comes from memory.
void DataCaches::ask_other_caches(int node, Pfn frame, Use use, Bill& bill) {
  for (int other = 0; other < static_cast<int>(caches_.size()); ++other) {
    LastLevelCache& cache = caches_[static_cast<std::size_t>(other)];
    if (other == node || !cache.holds(frame.v)) continue;
    if (cache.is_dirty(frame.v)) write_back(frame, bill);
    if (use == Use::kRead)
      cache.clean(frame.v);
    else
      cache.drop(frame.v);
  }
}

void DataCaches::miss(int node, Pfn frame, Use use, Bill& bill) {
  ++stats_.misses;
  const LastLevelCache::Victim victim =
      caches_[static_cast<std::size_t>(node)].fill(frame.v, use != Use::kRead);
  if (victim.dirty) write_back({victim.frame}, bill);
  if (use == Use::kOverwrite)
    bill.bytes_taken += page_size_;
  else
    fill(frame, page_size_, bill);
}

void DataCaches::access(int node, Pfn frame, Use use, std::uint64_t bytes, Bill& bill) {
  if (caches_.size() > 1) ask_other_caches(node, frame, use, bill);
  if (!caches_[static_cast<std::size_t>(node)].hit(frame.v, use != Use::kRead)) {
    miss(node, frame, use, bill);
    return;
  }
  ++stats_.hits;
  bill.bytes_held += bytes;
}

void DataCaches::write_past(Pfn frame, std::uint64_t bytes, Bill& bill) {
  for (LastLevelCache& cache : caches_) cache.drop(frame.v);
  fill(frame, bytes, bill);
}

// Pages i below `pages`, of frame(i), of which bytes(i, j) of i to j are asked for.  Most
// of them are held, and nobody else is to be asked.
template <typename Frame, typename Bytes>
void DataCaches::access_pages(int node, std::uint64_t pages, Use use, Bill& bill,
                              Frame frame, Bytes bytes) {
  LastLevelCache& cache = caches_[static_cast<std::size_t>(node)];
  for (std::uint64_t i = 0; i < pages; ++i) {
    if (caches_.size() == 1) {
      const std::uint64_t held = cache.hits(
          pages - i, use != Use::kRead, [&, i](std::uint64_t k) { return frame(i + k); });
      stats_.hits += held;
      if (held != 0) bill.bytes_held += bytes(i, i + held);
      i += held;
      if (i == pages) return;
    }
    if (const std::uint32_t f = frame(i); f != LastLevelCache::kNoFrame)
      access(node, {f}, use, bytes(i, i + 1), bill);
    else
      bill.bytes_held += bytes(i, i + 1);
  }
}

void DataCaches::access_range(const Task& task, Process& process, VirtAddr at,
                              std::uint64_t n, Use use, Bill& bill) {
  for (const VirtAddr end = at + n; at < end;) {
    const Span span(process.mm().pages(), at, end);
    access_pages(
        task.node(), span.pages(), use, bill,
        [&](std::uint64_t i) { return span.frame(i); },
        [&](std::uint64_t i, std::uint64_t j) { return span.bytes(i, j); });
    at = span.stop();
  }
}

void DataCaches::write_past_range(Process& process, VirtAddr at, std::uint64_t n,
                                  Bill& bill) {
  for (const VirtAddr end = at + n; at < end;) {
    const Span span(process.mm().pages(), at, end);
    for (std::uint64_t i = 0; i < span.pages(); ++i) {
      const std::uint32_t frame = span.frame(i);
      if (frame != LastLevelCache::kNoFrame)
        write_past({frame}, span.bytes(i, i + 1), bill);
      else
        bill.bytes_held += span.bytes(i, i + 1);
    }
    at = span.stop();
  }
}

bool DataCaches::bypasses(std::uint64_t bytes) const {
  const std::uint64_t threshold = kernel_.profile().llc.non_temporal_threshold;
  return threshold != 0 && bytes >= threshold;
}

std::uint64_t DataCaches::batch_from(VirtAddr at, std::uint64_t left) const {
  const std::uint64_t batch = std::max(kBatch, page_size_);
  return std::min(left, batch - (at.v & (page_size_ - 1)));
}

// A byte that is copied is accessed twice.
std::uint64_t DataCaches::copy_rate() const {
  return kernel_.profile().costs.cached_copy_rate * 2;
}

// look_up(done, part, bill) of each batch of the `n` bytes from `to` on, paid for at once;
// what is held goes with the batch before it, but for what a port transfers: its sibling
// shall be seen to come and go.
template <typename LookUp>
void DataCaches::in_batches(Task& task, VirtAddr to, std::uint64_t n, std::uint64_t rate,
                            LookUp look_up) {
  const std::uint64_t most_held = ports_.empty() ? kMostHeld : 0;
  Bill bill;
  for (std::uint64_t done = 0; done < n;) {
    task.sync();
    do {
      const std::uint64_t part = batch_from(to + done, n - done);
      look_up(done, part, bill);
      done += part;
    } while (done < n && bill.all_traffic == 0 && bill.bytes_held < most_held);
    pay(task, bill, rate);
    bill.clear();
  }
}

// look_up(i, bill) of each frame.
template <typename LookUp>
void DataCaches::in_batches(Task& task, std::uint64_t bytes, std::uint64_t rate,
                            LookUp look_up) {
  const auto pages = static_cast<std::uint32_t>(bytes / page_size_);
  const auto batch =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(kBatch / page_size_, 1));
  Bill bill;
  for (std::uint32_t done = 0; done < pages; done += batch) {
    for (std::uint32_t i = done; i < std::min(done + batch, pages); ++i) look_up(i, bill);
    pay(task, bill, rate);
    bill.clear();
  }
}

// `whole` bytes are written by the call of which these are a part.
void DataCaches::write_range(const Task& task, Process& process, VirtAddr at,
                             std::uint64_t n, std::uint64_t whole, Bill& bill) {
  if (bypasses(whole))
    write_past_range(process, at, n, bill);
  else
    access_range(task, process, at, n, Use::kWrite, bill);
}

void DataCaches::copy(Task& task, Process& process, VirtAddr to, VirtAddr from,
                      std::uint64_t n) {
  in_batches(task, to, n, copy_rate(),
             [&](std::uint64_t done, std::uint64_t part, Bill& bill) {
               access_range(task, process, from + done, part, Use::kRead, bill);
               write_range(task, process, to + done, part, n, bill);
             });
}

void DataCaches::set(Task& task, Process& process, VirtAddr to, std::uint64_t n,
                     std::uint64_t whole) {
  in_batches(task, to, n, kernel_.profile().costs.clear_rate,
             [&](std::uint64_t done, std::uint64_t part, Bill& bill) {
               write_range(task, process, to + done, part, whole, bill);
             });
}

void DataCaches::clear_pages(const Task& task, const Pfn* frames, std::uint64_t count,
                             Bill& bill) {
  access_pages(
      task.node(), count, Use::kOverwrite, bill,
      [&](std::uint64_t i) { return frames[i].v; },
      [&](std::uint64_t i, std::uint64_t j) { return (j - i) * page_size_; });
}

void DataCaches::clear_frames(Task& task, Pfn first, std::uint64_t bytes) {
  in_batches(task, bytes, kernel_.profile().costs.clear_rate,
             [&](std::uint32_t i, Bill& bill) {
               access(task.node(), {first.v + i}, Use::kOverwrite, page_size_, bill);
             });
}

void DataCaches::copy_frames(Task& task, Pfn to, Pfn from, std::uint64_t bytes) {
  in_batches(task, bytes, copy_rate(), [&](std::uint32_t i, Bill& bill) {
    access(task.node(), {from.v + i}, Use::kRead, page_size_, bill);
    access(task.node(), {to.v + i}, Use::kWrite, page_size_, bill);
  });
}

void DataCaches::pay(Task& task, const Bill& bill, std::uint64_t rate) {
  const arch::Costs& costs = kernel_.profile().costs;
  task.charge(stream_time(bill.bytes_taken, costs.memory_rate));
  use_port(task, bill.bytes_held, rate);
  if (bill.all_traffic != 0) await_memory(task, bill);
}

void DataCaches::use_port(Task& task, std::uint64_t bytes, std::uint64_t rate) {
  if (ports_.empty())
    task.charge(stream_time(bytes, rate));
  else
    ports_[core_of(task)]->transfer(task, bytes, rate);
}

// Model: a core's rate is divided when a transfer begins, and not anew when its sibling's
// ends; transfers are short.
void DataCaches::await_fills(Task& task, SharedBandwidth& memory, std::uint64_t bytes) {
  const std::uint64_t rate = kernel_.profile().costs.memory_rate;
  if (ports_.empty() || bytes == 0) {
    memory.transfer(task, bytes, rate);
    return;
  }
  const std::size_t core = core_of(task);
  ++filling_[core];
  memory.transfer(task, bytes, rate / filling_[core]);
  --filling_[core];
}

std::size_t DataCaches::core_of(const Task& task) const {
  return static_cast<std::size_t>(task.cpu() / kernel_.engine().shape().threads_per_core);
}

void DataCaches::await_memory(Task& task, const Bill& bill) {
  const arch::Costs& costs = kernel_.profile().costs;
  stats_.dram_bytes += bill.all_traffic;
  for (std::size_t node = 0; node < caches_.size(); ++node) {
    SharedBandwidth& memory = kernel_.bandwidth(static_cast<int>(node));
    await_fills(task, memory, bill.fills[node]);
    memory.transfer(task, bill.writebacks[node], costs.node_bandwidth);
  }
}

}  // namespace faultline::kernel
