// SPDX-License-Identifier: Apache-2.0
// jemalloc over a Platform: what users of it include.  See jemalloc_class.h.
#pragma once

#include "allocator/jemalloc/bins.h"
#include "allocator/jemalloc/caches.h"
#include "allocator/jemalloc/chunks.h"
#include "allocator/jemalloc/entry.h"
#include "allocator/jemalloc/jemalloc_class.h"
#include "allocator/jemalloc/large.h"
#include "allocator/jemalloc/purge.h"
#include "allocator/jemalloc/runs.h"
