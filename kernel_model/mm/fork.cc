// SPDX-License-Identifier: Apache-2.0
//
// fork(2), execve(2) and exit(2), their memory side: the child gets a copy of the VMAs, and
// shares the pages until one of the two writes.
//
// Stands for: dup_mmap() (kernel/fork.c; mm/mmap.c from 6.17), anon_vma_fork() (mm/rmap.c),
// exit_mmap() (mm/mmap.c), v4.15-6.18.
#include "kernel_model/mm/accounting.h"
#include "kernel_model/mm/exec_layout.h"
#include "kernel_model/mm/hugetlb.h"
#include "kernel_model/mm/mm.h"
#include "kernel_model/mm/mm_centres.h"
#include "kernel_model/mm/mm_shared.h"
#include "kernel_model/mm/mmap.h"
#include "kernel_model/mm/mmu_gather.h"
#include "kernel_model/mm/vma_ops.h"
#include "kernel_model/mm/vrange.h"
#include "kernel_model/syscall.h"

namespace faultline::kernel {

namespace {

// What the child has as the parent had it, before any VMA.
void copy_mm(Mm& child, const Mm& parent) {
  child.start_brk = parent.start_brk;
  child.brk = parent.brk;
  child.mmap_base = parent.mmap_base;
  child.thp_disabled = parent.thp_disabled;
  child.thp_except_advised = parent.thp_except_advised;
  child.def_flags = parent.def_flags & ~std::uint64_t{VM_LOCKED | VM_LOCKONFAULT};
}

// anon_vma_fork(): the child's new pages get an owner of their own, below the parent's.
void anon_vma_fork(Kernel& kernel, Vma& child, const Vma& parent) {
  if (parent.anon_vma == nullptr) return;
  child.anon_vma = kernel.mm_shared().new_anon_vma();
  child.anon_vma_chain = parent.anon_vma_chain + 1;
}

Vma& dup_vma(Task& task, Mm& child, const Vma& from) {
  const arch::Profile& profile = child.kernel().profile();
  task.charge(profile.costs.vma_split_merge);
  VmaSpec spec = VmaSpec::of(from, from.range(), profile.geometry.page_shift);
  spec.vm_flags &= ~std::uint64_t{VM_LOCKED | VM_LOCKONFAULT};
  spec.anon_vma = {};
  spec.anon_vma_chain = 0;
  spec.hugetlb = hugetlb_dup_mapping(from);
  Vma& copy = vma_link(task, child, spec);
  if ((from.vm_flags & VM_WIPEONFORK) == 0) anon_vma_fork(child.kernel(), copy, from);
  return copy;
}

// dup_mmap()
Errno dup_mmap(Task& task, Mm& child, Mm& parent) {
  const Scope scope(task, centre::kDupMmap);
  for (Vma& vma : parent.vmas) {
    parent.vma_start_write(task, vma);
    if ((vma.vm_flags & VM_DONTCOPY) != 0) continue;
    const std::uint64_t pages = pages_of(parent, vma.bytes());
    if ((vma.vm_flags & VM_ACCOUNT) != 0 && !vm_enough_memory(parent, pages))
      return Errno::kENOMEM;
    Vma& copy = dup_vma(task, child, vma);
    vm_stat_account(child, copy.vm_flags, static_cast<std::int64_t>(pages));
    if ((vma.vm_flags & VM_WIPEONFORK) == 0 &&
        !parent.pages().copy_page_range(task, child.pages(), vma, copy))
      return Errno::kENOMEM;
  }
  // flush_tlb_mm(): what may be written no longer.
  const VirtAddr top{parent.kernel().profile().layout.task_size};
  flush_tlb_range(task, parent.pages(), {VirtAddr{}, top});
  // vrange_fork(), from v8 on.
  if (child.vranges() != nullptr && child.kernel().config().vrange >= VrangeVersion::k8)
    parent.vranges()->copy_to(task, *child.vranges());
  return Errno::kOk;
}

// __mmput(): khugepaged_exit(), then exit_mmap().
void exit_mmap(Task& task, Mm& mm) {
  const Scope scope(task, centre::kExitMmap);
  mm.exiting = true;
  mm.kernel().mm_shared().khugepaged.exit(task, mm);
  mm.mmap_write_lock(task);
  const VirtAddr top{mm.kernel().profile().layout.task_size};
  static_cast<void>(do_munmap(task, mm, VirtAddr{}, top.v, MunmapLock::kKeep));
  if (mm.vranges() != nullptr) mm.vranges()->clear(task);
  mm.mmap_write_unlock(task);
}

}  // namespace

SysResult<Process*> sys_fork(Task& task, Process& process) {
  Kernel& kernel = process.kernel();
  Mm& parent = process.mm();
  const Scope entry(task, kernel.centres().syscall_entry);
  task.charge(kernel.profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysFork);
  task.charge(kernel.profile().costs.clone_base);

  Process& child = kernel.add_process(process.name());
  child.real_parent = &process;
  parent.mmap_write_lock(task);
  child.mm().mmap_write_lock(task);
  copy_mm(child.mm(), parent);
  const Errno error = dup_mmap(task, child.mm(), parent);
  if (error == Errno::kOk && !parent.pages().may_enter_khugepaged())
    child.mm().pages().khugepaged_enter(task);  // khugepaged_fork()
  if (error == Errno::kOk && process.on_fork) process.on_fork(child);
  child.mm().mmap_write_unlock(task);
  parent.mmap_write_unlock(task);
  if (error == Errno::kOk) return &child;
  exit_mmap(task, child.mm());
  return error;
}

void sys_execve(Task& task, Process& process) {
  const Scope entry(task, process.kernel().centres().syscall_entry);
  task.charge(process.kernel().profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysExecve);
  // Model: reading the program and starting it cost nothing.
  auto fresh = std::make_unique<Mm>(process);
  set_up_exec_layout(*fresh);
  std::unique_ptr<Mm> old = process.exec_mmap(std::move(fresh));
  exit_mmap(task, *old);
  while (old->grabs > 0) task.sleep(Duration::us(1));  // Model: mmdrop() waits
  process.kernel().mm_shared().khugepaged.drop(std::move(old));
}

void sys_exit_group(Task& task, Process& process) {
  const Scope entry(task, process.kernel().centres().syscall_entry);
  task.charge(process.kernel().profile().costs.syscall_entry_exit);
  const Scope scope(task, centre::kSysExitGroup);
  exit_mmap(task, process.mm());
}

}  // namespace faultline::kernel
