// SPDX-License-Identifier: Apache-2.0
//
// Real jemalloc 5.3 for its users; jemalloc53_class.h tells what it is.
#pragma once

#include "allocator/jemalloc53/entry.h"
#include "allocator/jemalloc53/hooks.h"
