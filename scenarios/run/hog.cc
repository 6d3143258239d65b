// SPDX-License-Identifier: Apache-2.0
#include "scenarios/run/hog.h"

#include <algorithm>
#include <utility>

#include "kernel_model/phys/phys_mem.h"
#include "kernel_model/syscall.h"
#include "sim/check.h"

namespace faultline::scenario {
namespace {

constexpr Centre kHog{kHogName, false};
constexpr std::uint64_t kStep = std::uint64_t{256} << 10;  // between two looks at the clock

std::uint64_t low_watermarks(kernel::Kernel& kernel) {
  std::uint64_t pages = 0;
  for (int node = 0; node < kernel.phys().nodes(); ++node)
    pages += kernel.phys().watermarks(node).low;
  return pages << kernel.profile().geometry.page_shift;
}

}  // namespace

Hog::Hog(kernel::Kernel& kernel, const PressureSpec& spec)
    : kernel_(kernel), spec_(spec), process_(kernel.create_process(std::string(kHogName))) {
  if (spec_.target_free == 0) spec_.target_free = low_watermarks(kernel);
}

std::uint64_t Hog::free_bytes() const {
  return kernel_.phys().nr_free_pages() << kernel_.profile().geometry.page_shift;
}

void Hog::start(std::function<void()> ready) {
  ready_ = std::move(ready);
  for (unsigned i = 0; i < spec_.cpus; ++i)
    kernel_.engine().spawn(std::string(kHogName) + std::to_string(i),
                           [this](Task& task) { run(task); });
}

void Hog::run(Task& task) {
  const Scope scope(task, kHog);
  Ring ring;
  ring.bytes = kernel_.phys().total_pages() << kernel_.profile().geometry.page_shift;
  ring.bytes -= ring.bytes % kStep;
  const auto map = kernel::sys_mmap(
      task, process_, {}, ring.bytes, kernel::kProtRead | kernel::kProtWrite,
      kernel::kMapPrivate | kernel::kMapAnonymous | kernel::kMapNoreserve);
  FAULTLINE_CHECK(map.ok());
  ring.start = map.value();
  if (kernel_.profile().geometry.has_thp)  // what it gives back shall be free
    static_cast<void>(kernel::sys_madvise(task, process_, ring.start, ring.bytes,
                                          kernel::Madvise::kNohugepage));
  Time due = task.now();
  while (!stopped_) {
    if (ready_ && free_bytes() <= spec_.target_free) {
      due = task.now();
      std::exchange(ready_, nullptr)();
    }
    if (!step(task, ring)) break;
    if (ready_ || spec_.dirty_rate == 0) continue;  // as fast as it can
    constexpr std::uint64_t kPsPerSecond = 1'000'000'000'000;
    due = due + Duration::ps(
                    static_cast<std::int64_t>(kStep * (kPsPerSecond / spec_.dirty_rate)));
    if (due > task.now()) kernel::sys_nanosleep(task, process_, due - task.now());
  }
  if (ready_) std::exchange(ready_, nullptr)();  // killed before it got that far
}

// False: it was killed for want of memory.
bool Hog::step(Task& task, Ring& ring) {
  const bool full = ring.head - ring.tail + kStep > ring.bytes;
  if (full || (!ready_ && free_bytes() <= spec_.target_free && ring.tail < ring.head)) {
    const kernel::VirtAddr oldest = ring.start + ring.tail % ring.bytes;
    const auto dropped =
        kernel::sys_madvise(task, process_, oldest, kStep, kernel::Madvise::kDontneed);
    FAULTLINE_CHECK(dropped == kernel::Errno::kOk);
    ring.tail += kStep;
  }
  return write(task, ring);
}

bool Hog::write(Task& task, Ring& ring) {
  const std::uint64_t page = kernel_.profile().geometry.page_size();
  const kernel::VirtAddr at = ring.start + ring.head % ring.bytes;
  const kernel::Signal signal = kernel::user_touch(
      task, process_, at, kStep, std::min(page, kStep), kernel::Access::kWrite);
  ring.head += kStep;
  if (signal != kernel::Signal::kNone) return false;
  // The bytes themselves: a memset of what is now there.
  constexpr std::uint64_t kPsPerSecond = 1'000'000'000'000;
  const std::uint64_t rate = kernel_.profile().costs.clear_rate;
  task.charge(Duration::ps(static_cast<std::int64_t>(kStep * (kPsPerSecond / rate))));
  return true;
}

}  // namespace faultline::scenario
