// SPDX-License-Identifier: Apache-2.0
// glibc's malloc as the environment wants it.
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <string_view>

#include "allocator/preload/heap.h"
#include "allocator/preload/notice.h"
#include "allocator/ptmalloc/cut.h"
#include "allocator/ptmalloc/tunables.h"

namespace faultline::preload {
namespace {

// FAULTLINE_MALLOC=2.43-x86 chooses the release; the machine's own is Debian 12's.
const alloc::ReleaseProfile& chosen_release() {
  constexpr std::string_view kDefault = "2.36";
  const char* const name = std::getenv("FAULTLINE_MALLOC");
  if (name != nullptr) {
    if (const auto* release = alloc::find_release(name)) return *release;
    notice(
        {"FAULTLINE_MALLOC: there is no release \"", name, "\"; ", kDefault, " is used"});
  }
  return *alloc::find_release(kDefault);
}

// As ptmalloc_init: MALLOC_* first, GLIBC_TUNABLES over it.
void read_environment(const alloc::ReleaseProfile& release, alloc::Settings& settings) {
  if (environ == nullptr) return;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("MALLOC_") && equals != std::string_view::npos)
      alloc::apply_variable(alloc::cut(text, 0, equals), alloc::cut(text, equals + 1),
                            release, settings);
  }
  if (const char* tunables = std::getenv("GLIBC_TUNABLES"))
    alloc::apply_tunables(tunables, release, settings);
}

}  // namespace

void make_heap_at(void* where, alloc::Native& first_thread) {
  const alloc::ReleaseProfile& release = chosen_release();
  alloc::Settings settings;
  read_environment(release, settings);
  new (where) Heap(first_thread, release, settings);
}

}  // namespace faultline::preload
