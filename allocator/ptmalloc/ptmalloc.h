// SPDX-License-Identifier: Apache-2.0
//
// glibc's malloc, as an object over a Platform: its declaration (ptmalloc_class.h, where to
// start reading) and all of its parts.
#pragma once

#include "allocator/ptmalloc/api.h"
#include "allocator/ptmalloc/arena_choice.h"
#include "allocator/ptmalloc/fork.h"
#include "allocator/ptmalloc/heap.h"
#include "allocator/ptmalloc/info.h"
#include "allocator/ptmalloc/int_free.h"
#include "allocator/ptmalloc/int_malloc.h"
#include "allocator/ptmalloc/memalign.h"
#include "allocator/ptmalloc/mmapped.h"
#include "allocator/ptmalloc/ptmalloc_class.h"
#include "allocator/ptmalloc/realloc.h"
#include "allocator/ptmalloc/sysmalloc.h"
#include "allocator/ptmalloc/thread_cache.h"
#include "allocator/ptmalloc/trim.h"
