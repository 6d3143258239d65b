#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts of a program of allocator operations, to the last fault, in three worlds:

  counts_test.py PLAYER MODEL_TRACE LIBRARY

minor faults, calls of brk and madvise, and resident memory: of the allocator in the model (4K pages, kernel
6.18), of the same source under LD_PRELOAD, and of the machine's own glibc, each against what was counted with
glibc 2.36.  The grow and trim cycle is: blocks of 8 KiB, doubling to `most`, then `most` until `total` is
reached; all are written and freed newest first.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from traces_test import SKIPPED, environment_with, parse, strace

KIB, MB = 1 << 10, 1000 * 1000


def cycle(total, most, order="reverse"):
    lines, size, reached = [], 8 * KIB, 0
    while reached < total:
        lines.append(f"a = malloc {size}")
        reached += size
        size = min(2 * size, most)
    return "\n".join([*lines, "write a", f"free a {order}".rstrip()])


def threads(*after):
    """Eight threads of 64 MiB each in blocks of 16 KiB; they hold it at the same time."""
    return "\n".join(["threads 8", "repeat 4096", "a = malloc 16K", "end", *after])


# (What threads do at the same time is torn apart in a trace: there, calls are counted in the model only.)
# Name, program, tunables, warm-up plays, counted plays, then a play's faults, brk and madvise calls, the
# resident memory at the end in MB of 1000 KiB, and the heaps made for arenas; None: not counted.
ROWS = [
    ("1 MB to 64 KiB", cycle(1 * MB, 64 * KIB), "", 5, 10, 222.0, 22, 0, None, None),
    ("1 MB, freed forward", cycle(1 * MB, 64 * KIB, ""), "", 5, 10, None, 6, 0, None, None),
    ("1 MB, top_pad 64 MB", cycle(1 * MB, 64 * KIB), "glibc.malloc.top_pad=67108864", 5, 10, 0.0, 0, 0, None, None),
    ("4 MB to 64 KiB", cycle(4 * MB, 64 * KIB), "", 5, 10, 958.0, 82, 0, None, None),
    ("64 MB to 8 MiB", cycle(64 * MB, 8192 * KIB), "", 5, 4, 16337.0, 17, 0, None, None),
    ("8 threads, full", threads("write a", "end"), "", 0, 1, None, None, 0, 526.6, None),
    ("8 threads, freed in order", threads("write a", "sleep 300000", "free a", "end"), "", 0, 1, None, None, None, 2.8, None),
    ("8 threads, one block lives", threads("live = malloc 2000", "write a", "sleep 300000", "free a", "end"), "", 0, 1,
     None, None, 0, 526.6, None),
    ("the same and malloc_trim", threads("live = malloc 2000", "write a", "sleep 300000", "free a", "end", "trim 0"), "",
     0, 1, None, None, 16, 2.0, None),
    ("24 threads on 2 CPUs", "threads 24\na = malloc 1000\nsleep 300000\nfree a\nend", "", 0, 1, None, None, None, None, 15),
]
# A process of the reported program has resident, beside what malloc got, its own text, libc and the main
# thread's stack: 1.6 MB.  Thread stacks that are kept and the like move the rest.
BASE_MB, SLACK_MB = 1.6, 0.3


def per_play(counts, plays):
    faults, rss, brk, madvise, heaps = counts
    return faults / plays, brk / plays, madvise / plays, rss / 1000 + BASE_MB, heaps


def in_model(tracer, path, tunables, warm, plays):
    done = subprocess.run([tracer, "2.36", tunables, path, str(warm), str(plays)], capture_output=True, text=True,
                          check=True)
    return per_play([int(n) for n in done.stdout.split()], plays)


def natively(player, path, environment, warm, plays):
    done = subprocess.run([player, path, str(warm), str(plays)], env=environment_with(environment),
                          capture_output=True, text=True, check=True)
    faults, rss = (int(n) for n in done.stdout.split())
    traced, trace = strace(player, path, environment, str(warm), str(plays))
    if traced.returncode != 0:
        return None
    calls = parse(trace, False, False)  # without those on the stacks of threads
    return per_play((faults, rss, *(sum(c.startswith(name) for c in calls) for name in ("brk", "madvise")),
                     len(re.findall(r"mmap\(.*, (?:67108864|134217728), PROT_NONE", trace))), plays)


def wrong(row, got):
    """What of the row doesn't hold: faults within one a play, calls exactly."""
    faults, brk, madvise, rss, heaps = row[5:]
    found = []
    # The kernel maps what lies around a touched page of a file now and then: libc's own pages.
    if faults is not None and abs(got[0] - faults) > 1.0:
        found.append(f"{got[0]:.1f} faults, not {faults}")
    if brk is not None and got[1] != brk:
        found.append(f"{got[1]:.1f} calls of brk, not {brk}")
    if madvise is not None and got[2] != madvise:
        found.append(f"{got[2]:.1f} calls of madvise, not {madvise}")
    if rss is not None and abs(got[3] - rss) > SLACK_MB + rss / 1000:
        found.append(f"{got[3]:.1f} MB resident, not {rss}")
    if heaps is not None and got[4] != heaps:
        found.append(f"{got[4]} heaps, not {heaps}")
    return found


def main(player, tracer, library):
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "program.txt"))
        pathlib.Path(path).write_text(ROWS[0][1] + "\n")
        probe, trace = strace(player, path, {})
        may_trace = probe.returncode == 0 and "getppid" in trace
        if not may_trace:
            print(f"{SKIPPED}no permission to trace: the model alone is held to the counts")
        failures = 0
        own = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
        for row in ROWS:
            name, text, tunables, warm, plays = row[:5]
            pathlib.Path(path).write_text(text + "\n")
            if row[9] is not None and len(os.sched_getaffinity(0)) != 2:
                continue  # so many arenas as CPUs allow: the model's machine has two
            worlds = {"model": in_model(tracer, path, tunables, warm, plays)}
            settings = {"GLIBC_TUNABLES": tunables} if tunables else {}
            if may_trace:
                preload = {**settings, "LD_PRELOAD": library, "FAULTLINE_MALLOC": "2.36"}
                worlds["preloaded"] = natively(player, path, preload, warm, plays)
                if own == "2.36":
                    worlds["glibc 2.36"] = natively(player, path, settings, warm, plays)
            for world, got in worlds.items():
                faults, brk, madvise, rss, heaps = got
                print(f"{name:28} {world:11} {faults:9.1f} faults {brk:5.1f} brk {madvise:7.1f} madvise {rss:7.1f} MB"
                      f" {heaps:3} heaps")
                for problem in wrong(row, got):
                    failures += 1
                    print(f"  {name}, {world}: {problem}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
