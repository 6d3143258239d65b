// SPDX-License-Identifier: Apache-2.0
#include "tests/real_kernels/machine.h"

#include <algorithm>

#include "arch_profiles/profile_loader.h"
#include "kernel_model/presets/presets.h"
#include "sim/check.h"

namespace faultline::real_kernels {
namespace {

std::string profile_name(const std::string& file) {
  if (file.starts_with("x86-4k")) return "x86-4k";
  if (file.starts_with("arm64-64k")) return "arm64-64k";
  if (file.starts_with("s390x")) return "s390x";
  return file;
}

// mmprobe's own heap, as heap100 saw it: "brk 0x520000 -> …;vma 4e0000-68f0000 …".  Nothing
// of it is there at exec: the probe's libc makes it.
void use_heap_of_probe(arch::Layout& layout, const std::string& note) {
  const auto vma = note.find(";vma ");
  std::uint64_t start = layout.brk_start;
  if (vma != std::string::npos) start = std::stoull(note.substr(vma + 5), nullptr, 16);
  std::erase_if(layout.vmas,
                [&](const arch::LayoutVma& v) { return v.start == layout.brk_start; });
  for (arch::LayoutVma& v : layout.vmas)
    if (v.end == layout.brk_start) v.end = start;  // the bss below grows with it
  layout.brk_start = layout.brk = start;
}

// The native kernel randomises addresses; some tests say where theirs were: "vma a-b" is a
// mapping right below [vvar], "addr=a" one of 3 GiB that was aligned to 2 MiB below it.
std::uint64_t top_of_mmap_area(const std::string& note) {
  const auto vma = note.find("vma ");
  const auto addr = note.find("addr=0x");
  if (addr != std::string::npos)
    return std::stoull(note.substr(addr + 5), nullptr, 16) + (std::uint64_t{3} << 30) +
           (1 << 20);
  if (vma == std::string::npos) return 0;
  return std::stoull(note.substr(note.find('-', vma) + 1), nullptr, 16);
}

void move_mmap_area(arch::Layout& layout, std::uint64_t top) {
  const auto vvar = std::ranges::find(layout.vmas, "[vvar]", &arch::LayoutVma::name);
  FAULTLINE_CHECK(vvar != layout.vmas.end());
  const std::uint64_t down = vvar->start - top;
  layout.mmap_base -= down;
  for (arch::LayoutVma& v : layout.vmas) {
    if (v.name != "[vvar]" && v.name != "[vdso]") continue;
    v.start -= down;
    v.end -= down;
  }
}

}  // namespace

arch::Profile profile_of(const DataFile& file, const Case& test) {
  arch::Profile p = arch::load_profile(profile_name(file.name));
  p.cpus = file.cpus;
  p.node_of_cpu.assign(p.cpus, 0);
  p.nodes.resize(1);
  p.nodes[0].memory_bytes = file.mem_total_kb * 1024;
  p.nodes[0].free_bytes = p.nodes[0].memory_bytes - p.nodes[0].memory_bytes / 64;
  p.nodes[0].free_blocks = file.buddyinfo;
  p.node_distance = {{10}};
  if (file.name.ends_with("nothp")) {  // no EDAT1: neither
    p.geometry.has_thp = false;
    p.geometry.hugetlb_sizes.clear();
  }
  use_heap_of_probe(p.layout, file.note_of("heap100", test.mode));
  const std::uint64_t top = top_of_mmap_area(test.note);
  if (file.name == kNativeFile && test.test != "heap100" && top != 0)
    move_mmap_area(p.layout, top);
  return p;
}

kernel::KernelConfig config_of(const DataFile& file, const std::string& thp_mode) {
  kernel::KernelConfig config = kernel::load_preset(file.preset);
  kernel::set_switch(config, "transparent_hugepage.enabled",
                     parse_word(thp_mode, {file.name, 0, 0}));
  config.khugepaged_scan_sleep = 4'000'000'000;  // the guests keep it asleep
  return config;
}

MachineShape shape_of(const arch::Profile& profile) {
  return {profile.node_of_cpu, profile.node_distance};
}

}  // namespace faultline::real_kernels
