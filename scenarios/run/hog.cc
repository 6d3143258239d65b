// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/hog.h"

#include <algorithm>
#include <string>

#include "kernel_model/mm/data_caches.h"
#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/syscall.h"
#include "sim/check.h"

namespace faultline::scenario {
namespace {

constexpr Centre kHog{kHogName, false};
constexpr Duration kPatience = Duration::ms(100);

Duration time_of(std::uint64_t bytes, std::uint64_t bytes_a_second) {
  constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
  return Duration::ps(
      static_cast<std::int64_t>(bytes * kNsPerSecond / bytes_a_second * 1000));
}

template <typename F>
std::uint64_t sum_of_nodes(kernel::Kernel& kernel, F pages_of) {
  std::uint64_t pages = 0;
  for (int node = 0; node < kernel.phys().nodes(); ++node)
    pages += pages_of(kernel.phys().watermarks(node));
  return pages << kernel.profile().geometry.page_shift;
}

}  // namespace

Hog::Hog(kernel::Kernel& kernel, const PressureSpec& spec)
    : kernel_(kernel),
      spec_(spec),
      high_(sum_of_nodes(kernel, [](const auto& marks) { return marks.high; })),
      process_(kernel.create_process(std::string(kHogName))) {
  if (spec_.target_free == 0)
    spec_.target_free = sum_of_nodes(kernel, [](const auto& marks) { return marks.low; });
  high_ = std::max(high_, spec_.target_free);
}

std::uint64_t Hog::free_bytes() const {
  return kernel_.phys().nr_free_pages() << kernel_.profile().geometry.page_shift;
}

void Hog::start() {
  for (unsigned i = 0; i < spec_.cpus; ++i)
    kernel_.engine().set_nice(
        kernel_.engine().spawn(std::string(kHogName) + std::to_string(i),
                               [this](Task& task) { run(task); }),
        spec_.nice);
}

void Hog::run(Task& task) {
  const Scope scope(task, kHog);
  Ring ring;
  map(task, ring);
  Time due = task.now();
  while (!stopped_ && step(task, ring)) {
    if (ring.phase == Phase::kFilling || spec_.dirty_rate == 0) {  // as fast as it can
      due = task.now();
      continue;
    }
    due = due + time_of(kStep, spec_.dirty_rate);
    if (due > task.now()) kernel::sys_nanosleep(task, process_, due - task.now());
  }
}

// Huge pages would not be free when a part of them is given back.
void Hog::map(Task& task, Ring& ring) {
  ring.bytes = kernel_.phys().total_pages() << kernel_.profile().geometry.page_shift;
  ring.bytes -= ring.bytes % kStep;
  ring.most = spec_.most == 0 ? ring.bytes : std::min(ring.bytes, spec_.most / spec_.cpus);
  const auto at = kernel::sys_mmap(
      task, process_, {}, ring.bytes, kernel::kProtRead | kernel::kProtWrite,
      kernel::kMapPrivate | kernel::kMapAnonymous | kernel::kMapNoreserve);
  FAULTLINE_CHECK(at.ok());
  ring.start = at.value();
  if (kernel_.profile().geometry.has_thp)
    static_cast<void>(kernel::sys_madvise(task, process_, ring.start, ring.bytes,
                                          kernel::Madvise::kNohugepage));
}

void Hog::next_phase(Task& task, Ring& ring) {
  const std::uint64_t free = free_bytes();
  const Phase was = ring.phase;
  switch (was) {
    case Phase::kFilling:
      if (free <= spec_.target_free || ring.full()) ring.phase = Phase::kWaiting;
      break;
    case Phase::kGrowing:
      if (free <= spec_.target_free) ring.phase = Phase::kWaiting;
      break;
    case Phase::kWaiting:
      if (free > high_)
        ring.phase = Phase::kGrowing;
      else if (task.now() - ring.since > kPatience)
        ring.phase = Phase::kShrinking;
      break;
    case Phase::kShrinking:
      if (free > high_) ring.phase = Phase::kGrowing;
      break;
  }
  if (ring.phase == was) return;
  ring.since = task.now();
  ring.grows = task.now() + time_of(kStep, spec_.grow_rate);
}

// False: it was killed for want of memory.
bool Hog::step(Task& task, Ring& ring) {
  next_phase(task, ring);
  bool grow = ring.phase == Phase::kFilling;
  if (ring.phase == Phase::kGrowing && task.now() >= ring.grows) {
    grow = true;
    ring.grows += time_of(kStep, spec_.grow_rate);
  }
  if (!grow || ring.full()) give_back(task, ring);
  const bool short_of_all = free_bytes() < spec_.target_free / 10 * 9;
  if (ring.phase == Phase::kShrinking || short_of_all) give_back(task, ring);
  return write(task, ring);
}

void Hog::give_back(Task& task, Ring& ring) {
  if (ring.tail == ring.head) return;
  const kernel::VirtAddr oldest = ring.start + ring.tail % ring.bytes;
  const auto dropped =
      kernel::sys_madvise(task, process_, oldest, kStep, kernel::Madvise::kDontneed);
  FAULTLINE_CHECK(dropped == kernel::Errno::kOk);
  ring.tail += kStep;
}

bool Hog::write(Task& task, Ring& ring) {
  const std::uint64_t page = kernel_.profile().geometry.page_size();
  const kernel::VirtAddr at = ring.start + ring.head % ring.bytes;
  const kernel::Signal signal = kernel::user_touch(
      task, process_, at, kStep, std::min(page, kStep), kernel::Access::kWrite);
  ring.head += kStep;
  if (signal != kernel::Signal::kNone) return false;
  // The bytes themselves: a memset of what is now there.
  if (kernel::DataCaches* const caches = kernel_.data_caches())
    caches->set(task, process_, at, kStep, kStep);
  else
    task.charge(time_of(kStep, kernel_.profile().costs.clear_rate));
  return true;
}

}  // namespace faultline::scenario
