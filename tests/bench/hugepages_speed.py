#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the model costs against the program that it models: hugepages_speed.py FAULTLINE [RUNS].

Ten million insertions into a hash map (glibc_hugepages/ryzen-5900x, variant `default`) on the machine
itself and in the model, without TLBs and with them, turn by turn.  CPU time, the least of RUNS.
Targets: 2 times the native program without TLBs, 4 times with them.  Printed beside the figures and not
held to them: a busy host would make that fail by chance.  What is checked is that the results of the
two worlds agree on what they count.
"""

import json
import pathlib
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIO = "scenarios/library/glibc_hugepages/ryzen-5900x.toml"


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(faultline, command, *options):
    """The variant's metrics, and the CPU seconds of all of it."""
    before = cpu_seconds()
    done = subprocess.run([faultline, command, SCENARIO, "--variant", "default", "--quiet", "--json", "-",
                           *options], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["variants"][0]["metrics"], cpu_seconds() - before


def main(faultline, runs):
    times = {"native": [], "off": [], "on": []}
    inserted = set()
    for _ in range(runs):
        native, _ = run(faultline, "native")
        times["native"].append(native["user_s"] + native["sys_s"])
        inserted.add(native["inserted"])
        for tlb, switch in (("off", "false"), ("on", "true")):
            model, seconds = run(faultline, "run", "--set", f"machine.tlb_model={switch}")
            times[tlb].append(seconds)
            inserted.add(model["inserted"])
    native = min(times["native"])
    print(f"native: {native:.3f} s of CPU")
    for tlb, target in (("off", 2), ("on", 4)):
        print(f"model, TLBs {tlb}: {min(times[tlb]):.3f} s, {min(times[tlb]) / native:.2f} times native "
              f"(target {target})")
    return 0 if len(inserted) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
