// SPDX-License-Identifier: Apache-2.0
//
// The end of a program that broke its heap: what glibc writes before it aborts.
#pragma once

namespace faultline::alloc {

// Writes the message to standard error and aborts; allocates nothing.
[[noreturn]] void malloc_printerr(const char* message);

}  // namespace faultline::alloc
