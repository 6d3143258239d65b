#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the main case may cost the host: budget.py FAULTLINE.

Targets: the whole file in 5 s of one core, `reported` at 500 virtual seconds a second, 500 MB of
memory.  Memory is repeatable and held to its target.  Time is printed beside its target and not held
to it: a busy host would make that fail by chance.
"""

import json
import pathlib
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIO = "scenarios/library/arm64_64k/mallocstress.toml"


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(faultline, *options):
    """The result of a run, and its CPU seconds."""
    before = cpu_seconds()
    done = subprocess.run([faultline, "run", SCENARIO, "--quiet", "--json", "-", *options], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout), cpu_seconds() - before


def main(faultline):
    reported, seconds = run(faultline, "--variant", "reported")
    speed = reported["variants"][0]["metrics"]["elapsed_s"] / seconds
    result, whole = run(faultline)
    # ru_maxrss of children is the largest of any that has ended.
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    print(f"reported: {speed:,.0f} virtual seconds a CPU second (target 500)")
    print(f"all {len(result['variants'])} variants: {whole:.2f} s of CPU (target 5)")
    print(f"memory: {memory:.0f} MB (target 500)")
    return 0 if memory < 500 else 1


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve())))
