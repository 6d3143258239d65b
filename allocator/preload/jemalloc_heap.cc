// SPDX-License-Identifier: Apache-2.0
// jemalloc as MALLOC_CONF wants it.
#include <cstdlib>
#include <new>

#include "allocator/jemalloc/conf.h"
#include "allocator/preload/heap.h"
#include "allocator/preload/notice.h"

namespace faultline::preload {

void make_heap_at(void* where, alloc::Native& first_thread) {
  alloc::je::Settings settings;
  if (const char* conf = std::getenv("MALLOC_CONF"))
    alloc::je::apply_conf(conf, settings, [](std::string_view pair) {
      notice({"MALLOC_CONF: passed over: \"", pair, "\""});
    });
  new (where) Heap(first_thread, settings);
}

}  // namespace faultline::preload
