// SPDX-License-Identifier: Apache-2.0
//
// The address space of a program that was just started: where its mappings lie, and which
// of their pages exec and the start-up code have touched.
//
// Stands for: load_elf_binary() and setup_arg_pages() (fs/binfmt_elf.c, fs/exec.c) of a
// static program.  Model: without randomisation; the places are data of the profile.
#pragma once

namespace faultline::kernel {

class Mm;

void set_up_exec_layout(Mm& mm);

}  // namespace faultline::kernel
