// SPDX-License-Identifier: Apache-2.0
#include "kernel_model/proc/maps.h"

#include <fmt/format.h>

#include "kernel_model/mm/mm.h"

namespace faultline::kernel {
namespace {

constexpr std::size_t kNameColumn = 25 + 8 * 6 - 1;  // seq_setwidth()

std::string perms_of(const Vma& vma) {
  std::string s;
  s += vma.vm_flags & VM_READ ? 'r' : '-';
  s += vma.vm_flags & VM_WRITE ? 'w' : '-';
  s += vma.vm_flags & VM_EXEC ? 'x' : '-';
  s += vma.vm_flags & VM_MAYSHARE ? 's' : 'p';
  return s;
}

// The kernel names the heap by where the break is, whatever else is said of the VMA.
std::string name_of(const Mm& mm, const Vma& vma) {
  if (!vma.name.empty() && vma.name != "[heap]") return vma.name;
  if (vma.start <= mm.brk && mm.start_brk <= vma.end && mm.start_brk < mm.brk)
    return "[heap]";
  if (vma.anon_name.empty()) return "";
  return "[anon:" + vma.anon_name + "]";
}

}  // namespace

std::string map_header(VirtAddr start, VirtAddr end, std::string_view perms,
                       std::uint64_t offset, std::string_view device_and_inode,
                       std::string_view name) {
  std::string line = fmt::format("{:08x}-{:08x} {} {:08x} {} ", start.v, end.v, perms,
                                 offset, device_and_inode);
  if (name.empty()) return line + "\n";
  if (line.size() < kNameColumn) line.resize(kNameColumn, ' ');
  return line + ' ' + std::string(name) + "\n";
}

std::string map_line(const Mm& mm, const Vma& vma) {
  const std::string name = name_of(mm, vma);
  const bool file = name.starts_with('/');
  const std::uint64_t offset =
      file ? vma.vm_pgoff << mm.kernel().profile().geometry.page_shift : 0;
  return map_header(vma.start, vma.end, perms_of(vma), offset, file ? "00:02 7" : "00:00 0",
                    name);
}

std::string maps_text(const Mm& mm) {
  std::string out;
  for (const Vma& vma : mm.vmas) out += map_line(mm, vma);
  return out;
}

}  // namespace faultline::kernel
