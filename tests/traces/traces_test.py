#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""System calls of the same program of allocator operations in three worlds:

  traces_test.py PLAYER MODEL_TRACE LIBRARY PROGRAM...

(a) the allocator in the model, (b) the same source under LD_PRELOAD, (c) the machine's own glibc, each
call with its sizes, protection, flags and advice, addresses relative to the mapping they lie in.  (b) and
(c) are traced with strace; without permission to trace, or with a glibc that is no profile, the test is
skipped and says so.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = "traces: skipped: "
HUGE = 2 << 20
CALLS = "brk,mmap,munmap,mprotect,madvise,mremap,getppid,clone3,clone,exit"
FLAGS = {"MAP_SHARED": 1, "MAP_PRIVATE": 2, "MAP_FIXED": 0x10, "MAP_ANONYMOUS": 0x20, "MAP_NORESERVE": 0x4000,
         "MAP_POPULATE": 0x8000, "MAP_STACK": 0x20000, "MAP_HUGETLB": 0x40000}
PROTECTION = {"PROT_NONE": 0, "PROT_READ": 1, "PROT_WRITE": 2, "PROT_EXEC": 4}
ADVICE = {"MADV_NORMAL": 0, "MADV_DONTNEED": 4, "MADV_FREE": 8, "MADV_HUGEPAGE": 14, "MADV_NOHUGEPAGE": 15}


def bits(text, names):
    value = 0
    for part in text.split("|"):
        if part in names:
            value |= names[part]
        elif match := re.fullmatch(r"(\d+)<<MAP_HUGE_SHIFT", part):
            value |= int(match.group(1)) << 26
        else:
            value |= int(part, 0)
    return value


class Relative:
    """Addresses as "m3+1000": the mapping in the order of their making, and an offset.

    boundaries: the break goes to boundaries of a huge page, and how far away they are is chance.
    """

    def __init__(self, boundaries):
        self.boundaries = boundaries
        self.maps = []  # (start, length)
        self.base = None
        self.reserved = set()  # mappings without access

    def made(self, start, length):
        self.maps.append((start, length))

    def moved(self, old, new):
        if self.boundaries and new % HUGE == 0 and old % HUGE != 0:
            return "brk to a boundary"
        return f"brk {new - old:+x}"

    def cut(self, start, length):
        """An aligned heap is cut out of a reservation: how much lies in front of it is chance."""
        for index, (first, whole) in enumerate(self.maps):
            if index in self.reserved and length < whole:
                if start == first:
                    self.maps[index] = (first + length, whole - length)
                    return f"munmap lead of m{index}"
                if start + length == first + whole:
                    self.maps[index] = (first, whole - length)
                    return f"munmap tail of m{index}"
        return None

    def of(self, address):
        for index in range(len(self.maps) - 1, -1, -1):
            start, length = self.maps[index]
            if start <= address <= start + length:
                return f"m{index}+{address - start:x}"
        if self.base is not None and self.base <= address < self.base + (1 << 36):
            if self.boundaries and address % HUGE == 0:
                return "brk at a boundary"
            return f"brk+{address - self.base:x}"
        return "elsewhere" if address else "0"


def model(command, boundaries):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}: status {done.returncode}\n{done.stderr}")
    relative, calls = Relative(boundaries), []
    for line in done.stdout.splitlines():
        call, result = line.split(" = ")
        words = call.split()
        name, numbers = words[0], [int(w, 16) for w in words[1:]]
        failed = result.startswith("-")
        value = 0 if failed else int(result, 16)
        if name == "sbrk":
            delta = numbers[0] - (1 << 64) if numbers[0] >> 63 else numbers[0]
            if relative.base is None:
                relative.base = value
            calls.append("brk failed" if failed else relative.moved(value, value + delta))
            continue
        if name == "madvise":
            numbers[2] = int(words[3])
        calls.append(entry(relative, name, numbers, failed, value))
    return calls


def entry(relative, name, numbers, failed, value):
    if name == "mmap":
        text = f"mmap {relative.of(numbers[0])} {numbers[1]:x} prot {numbers[2]} flags {numbers[3]:x}"
        if not failed and not numbers[3] & 0x10:
            relative.made(value, numbers[1])
            if numbers[2] == 0:
                relative.reserved.add(len(relative.maps) - 1)
    elif name == "munmap" and (cut := relative.cut(*numbers)):
        text = cut
    elif name == "mremap":
        text = f"mremap {relative.of(numbers[0])} {numbers[1]:x} {numbers[2]:x} {numbers[3]}"
        if not failed:
            relative.made(value, numbers[2])
    else:
        text = f"{name} {relative.of(numbers[0])} " + " ".join(f"{n:x}" for n in numbers[1:])
    return text + (" failed" if failed else "")


LINE = re.compile(r"^(?:(\d+) +)?(\w+)\((.*)\) += (\S+)")


UNFINISHED = re.compile(r"^(\d+) +(\w+\(.*?) <unfinished \.\.\.>$")
RESUMED = re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$")


def joined(trace):
    """Lines of calls; one that another process's call stands amid is put together again."""
    begun = {}
    for line in trace.splitlines():
        if match := UNFINISHED.match(line):
            begun[match.group(1)] = match.group(2)
        elif (match := RESUMED.match(line)) and match.group(1) in begun:
            yield f"{match.group(1)} {begun.pop(match.group(1))}{match.group(2)}"
        else:
            yield line


def parse(trace, boundaries, forks):
    """The calls between the two marks, without those that make threads and their stacks.

    forks: a new number is a process with a break of its own, or a thread of one.
    """
    relative, calls, inside, stacks = Relative(boundaries), [], False, set()
    breaks, last = {}, None
    for line in joined(trace):
        match = LINE.match(line)
        if not match:
            continue
        pid, name, arguments, result = match.groups()
        process = pid if forks else "all"
        here = breaks.setdefault(process, breaks.get(last))
        last = process
        if name == "getppid":
            inside = not inside
            continue
        words = [w.strip() for w in arguments.split(",")]
        failed = result.startswith("-")
        value = 0 if failed or result == "?" else int(result, 0)
        if name == "brk":
            if inside and here is not None and words[0] != "NULL" and value != here:
                if relative.base is None:
                    relative.base = here
                calls.append(relative.moved(here, value))
            elif inside and words[0] != "NULL":
                calls.append("brk failed")
            breaks[process] = value
            continue
        if not inside or name in ("clone", "clone3", "exit"):
            continue
        address = 0 if words[0] == "NULL" else int(words[0], 16)
        if name == "mmap":
            numbers = [address, int(words[1], 0), bits(words[2], PROTECTION), bits(words[3], FLAGS)]
        elif name == "munmap":
            numbers = [address, int(words[1], 0)]
        elif name == "mprotect":
            numbers = [address, int(words[1], 0), bits(words[2], PROTECTION)]
        elif name == "madvise":
            numbers = [address, int(words[1], 0), bits(words[2], ADVICE)]
        else:
            numbers = [address, int(words[1], 0), int(words[2], 0), 1 if "MAYMOVE" in words[3] else 0]
        # A thread's stack is libc's: its mapping, what opens it, what is given back of it.
        if name == "mmap" and numbers[3] & 0x20000:
            stacks.add((value, value + numbers[1]))
            continue
        if any(start <= address < end for start, end in stacks):
            continue
        # The player's list of its threads: the allocator maps whole pages.
        if numbers[1] % 4096 != 0:
            continue
        calls.append(entry(relative, name, numbers, failed, value))
    return calls


def environment_with(settings):
    """This process's environment with these settings, and none of malloc's from outside."""
    outside = ("GLIBC_TUNABLES", "LD_PRELOAD", "FAULTLINE_MALLOC", "MALLOC_CONF")
    return {**{k: v for k, v in os.environ.items() if k not in outside}, **settings}


def strace(player, program, environment, *arguments):
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as out:
        command = ["setarch", "-R", "strace", "-f", "-qq", "-o", out.name, "-e", f"trace={CALLS}", "-e", "signal=none"]
        for name, value in environment.items():
            command += ["-E", f"{name}={value}"]
        done = subprocess.run([*command, player, program, *arguments], env=environment_with({}), capture_output=True, text=True, check=False)
        return done, out.read()


def tunables_of(program):
    match = re.search(r"^# tunables: (\S+)", pathlib.Path(program).read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def difference(name, theirs, ours):
    for i in range(max(len(theirs), len(ours))):
        a = theirs[i] if i < len(theirs) else "(no call)"
        b = ours[i] if i < len(ours) else "(no call)"
        if a != b:
            return f"  call {i + 1} {name}: {a}\n        in the model: {b}"
    return ""


def main(player, tracer, library, programs):
    probe, trace = strace(player, programs[0], {})
    if probe.returncode != 0 or "getppid" not in trace:
        print(f"{SKIPPED}no permission to trace ({probe.stderr.strip()[:100]})")
        return 0
    version = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    wrong = 0
    for program in programs:
        tunables = tunables_of(program)
        boundaries = "hugetlb=1" in tunables
        forks = re.search(r"^\s*fork", pathlib.Path(program).read_text(), re.MULTILINE) is not None
        ours = model([tracer, "2.36", tunables, program], boundaries)
        environment = {"GLIBC_TUNABLES": tunables} if tunables else {}
        worlds = {"preloaded": {**environment, "LD_PRELOAD": library, "FAULTLINE_MALLOC": "2.36"}}
        if version == "2.36":
            worlds["glibc 2.36"] = environment
        for name, env in worlds.items():
            done, trace = strace(player, program, env)
            theirs = parse(trace, boundaries, forks)
            if done.returncode != 0 or (found := difference(name, theirs, ours)):
                wrong += 1
                print(f"{program}: {len(theirs)} calls {name}, {len(ours)} in the model\n"
                      + (found if done.returncode == 0 else f"  status {done.returncode}"))
    print(f"traces: {len(programs)} programs, {wrong} differences"
          + ("" if version == "2.36" else f"; not held against this machine's glibc {version}"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
