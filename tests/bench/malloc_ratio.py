#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the native library is beside others:

  malloc_ratio.py PATTERNS_PROGRAM LIBRARY [ROUNDS]

Every pattern of malloc_patterns on this machine's libc, on the library in several releases, and on Debian's
jemalloc and mimalloc where they are installed.  The runs of a round follow each other, and of all rounds the
least CPU time counts, so that a busy machine moves all alike.  Printed are ratios to libc: below 1 is faster.
"""

import glob
import os
import subprocess
import sys

PATTERNS = {"churn": 20_000_000, "random": 5_000_000, "producer": 3_000_000, "larson": 6_000_000, "large": 60_000}
RELEASES = ("2.36", "2.43-x86", "2.44")
OTHERS = {"jemalloc": "/usr/lib/*/libjemalloc.so.2", "mimalloc": "/usr/lib/*/libmimalloc.so.2*"}


def contenders(library):
    yield "libc", {}
    for release in RELEASES:
        yield release, {"LD_PRELOAD": library, "FAULTLINE_MALLOC": release}
    for name, pattern in OTHERS.items():
        if found := sorted(glob.glob(pattern)):
            yield name, {"LD_PRELOAD": found[0]}


def nanoseconds(program, pattern, environment):
    clean = {k: v for k, v in os.environ.items() if k not in ("GLIBC_TUNABLES", "LD_PRELOAD", "FAULTLINE_MALLOC")}
    done = subprocess.run([program, pattern, str(PATTERNS[pattern])], env={**clean, **environment}, capture_output=True,
                          text=True, check=True)
    return float(done.stdout)


def main(program, library, rounds="5"):
    all_of_them = dict(contenders(library))
    print(f"CPU time against {' '.join(os.confstr('CS_GNU_LIBC_VERSION').split())}, least of {rounds} rounds")
    print(f"{'pattern':10}{'libc ns':>9}" + "".join(f"{name:>10}" for name in list(all_of_them)[1:]))
    for pattern in PATTERNS:
        least = {name: float("inf") for name in all_of_them}
        for _ in range(int(rounds)):
            for name, environment in all_of_them.items():
                least[name] = min(least[name], nanoseconds(program, pattern, environment))
        print(f"{pattern:10}{least['libc']:9.1f}"
              + "".join(f"{least[name] / least['libc']:10.2f}" for name in list(all_of_them)[1:]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
