// SPDX-License-Identifier: Apache-2.0
//
// Plays a random program on the machine's own malloc and prints where each block lay: an
// offset from the initial break, or, for a block with its own mapping, -1.  First line: the
// libc's version.
//
// Usage: glibc_replay SEED STEPS
//
// Uses nothing of the C++ library, whose start-up would allocate.
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/unit/allocator/ops.h"

namespace {

using faultline::alloc::ops::Op;

constexpr unsigned kRoom = 1 << 16;
void* blocks[faultline::alloc::ops::kSlots];
long offsets[kRoom];

void* play(const Op& op) {
  void* const old = blocks[op.slot];
  switch (op.kind) {
    case Op::kMalloc:
      return malloc(op.size);
    case Op::kCalloc:
      return calloc(1, op.size);
    case Op::kRealloc:
      return realloc(old, op.size);
    case Op::kMemalign:
      return memalign(op.alignment, op.size);
    case Op::kFree:
      free(old);
      return nullptr;
    case Op::kTrim:
      malloc_trim(0);
      return old;
  }
  return nullptr;
}

// What a static buffer is given is written without a stdio buffer, which would be
// allocated.
void print(const char* text) {
  if (write(STDOUT_FILENO, text, strlen(text)) < 0) _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  faultline::alloc::ops::Source source(strtoull(argv[1], nullptr, 10));
  const unsigned steps = static_cast<unsigned>(strtoul(argv[2], nullptr, 10));
  if (steps > kRoom) return 2;
  const char* const start = static_cast<const char*>(sbrk(0));
  for (unsigned i = 0; i < steps; ++i) {
    const Op op = source.next();
    blocks[op.slot] = play(op);
    const char* const at = static_cast<const char*>(blocks[op.slot]);
    const bool heap = at >= start && at < static_cast<const char*>(sbrk(0));
    offsets[i] = at == nullptr ? 0 : heap ? at - start : -1;
  }
  print(gnu_get_libc_version());
  print("\n");
  for (unsigned i = 0; i < steps; ++i) {
    char line[32];
    snprintf(line, sizeof line, "%ld\n", offsets[i]);
    print(line);
  }
  return 0;
}
