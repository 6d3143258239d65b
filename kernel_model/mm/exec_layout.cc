// SPDX-License-Identifier: Apache-2.0
//
// A new program's mappings: see exec_layout.h.
#include "kernel_model/mm/exec_layout.h"

#include <algorithm>
#include <string_view>

#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mmap.h"
#include "sim/check.h"

namespace faultline::kernel {

namespace {

// VM_* as exec and _install_special_mapping set them.
std::uint64_t flags_of(const arch::LayoutVma& vma) {
  std::uint64_t flags = VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC;
  if (vma.perms.find('r') != std::string::npos) flags |= VM_READ;
  if (vma.perms.find('w') != std::string::npos) flags |= VM_WRITE;
  if (vma.perms.find('x') != std::string::npos) flags |= VM_EXEC;
  if (vma.name.starts_with("[vvar"))
    flags = VM_READ | VM_MAYREAD | VM_IO | VM_DONTEXPAND | VM_DONTDUMP | VM_PFNMAP;
  if (vma.name == "[vdso]") flags |= VM_DONTEXPAND;
  if (vma.name == "[stack]") flags |= VM_GROWSDOWN;
  if (accountable_mapping(flags)) flags |= VM_ACCOUNT;
  return flags;
}

bool is_anonymous(std::string_view name) {
  return name.empty() || name == "[heap]" || name == "[stack]";
}

// What start-up has touched: a small program's text and data are mapped whole by
// fault-around and relocation, the start-up heap by TLS and stdio set-up, the top of the
// stack by arguments and main, vvar and vdso by the first clock_gettime.
Range touched_at_start(const Mm& mm, const Vma& vma) {
  const std::uint64_t page = mm.kernel().profile().geometry.page_size();
  if (vma.name == "[stack]") return {vma.end - page, vma.end};
  if (vma.name == "[heap]") return {vma.start, vma.start + page};
  return vma.range();
}

Vma& add(Mm& mm, const arch::LayoutVma& from, std::uint64_t& file_offset) {
  Vma& vma = mm.vmas.make();
  vma.start = VirtAddr{from.start};
  vma.end = VirtAddr{from.end};
  vma.vm_flags = flags_of(from);
  vma.name = from.name;
  vma.anonymous = is_anonymous(from.name);
  if (vma.anonymous) {
    vma.vm_pgoff = pages_of(mm, from.start);
  } else {
    if (from.offset) file_offset = *from.offset;
    vma.vm_pgoff = pages_of(mm, file_offset);
    file_offset += vma.bytes();
  }
  mm.vmas.insert(vma);
  const std::uint64_t pages = pages_of(mm, vma.bytes());
  vm_stat_account(mm, vma.vm_flags, static_cast<std::int64_t>(pages));
  if ((vma.vm_flags & VM_ACCOUNT) != 0) mm.kernel().committed_pages += pages;
  return vma;
}

}  // namespace

void set_up_exec_layout(Mm& mm) {
  const arch::Layout& layout = mm.kernel().profile().layout;
  mm.mmap_base = VirtAddr{layout.mmap_base};
  mm.start_brk = VirtAddr{layout.brk_start};
  mm.brk = VirtAddr{layout.brk};
  std::uint64_t file_offset = 0;
  for (const arch::LayoutVma& from : layout.vmas) {
    Vma& vma = add(mm, from, file_offset);
    // execve's argument page is faulted in while the caller's old mm is still current, and
    // so goes past the task's cache (inc_mm_counter_fast, mm/memory.c); all else is cached
    // still.
    mm.pages().map_at_start(vma, touched_at_start(mm, vma), vma.name == "[stack]");
  }
}

}  // namespace faultline::kernel
