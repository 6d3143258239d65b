# SPDX-License-Identifier: Apache-2.0
"""What `faultline run --proc DIR` writes: the kernel's own texts, whole, and they agree with each
other and with the result.

usage: proc_test.py FAULTLINE, from the source folder
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SCENARIO = "touch-every-16MiB"
SYSTEM = ["vmstat", "meminfo", "buddyinfo", "lock_stat"]
PROCESS = ["maps", "smaps", "smaps_rollup", "status"]
MAPS_LINE = re.compile(r"^[0-9a-f]{8,}-[0-9a-f]{8,} [r-][w-][x-][sp] [0-9a-f]{8} "
                       r"[0-9a-f]{2}:[0-9a-f]{2} [0-9]+ *[^ ].*$|"
                       r"^[0-9a-f]{8,}-[0-9a-f]{8,} [r-][w-][x-][sp] [0-9a-f]{8} "
                       r"[0-9a-f]{2}:[0-9a-f]{2} [0-9]+ *$")


def counters(text):
    """vmstat: a name and a number a line."""
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def kilobytes(text, label):
    """The sum of all lines `label:  N kB`."""
    return sum(int(n) for n in re.findall(rf"^{label}: +([0-9]+) kB$", text, re.M))


def check_variant(folder, metrics):
    """What is wrong with a variant's files."""
    proc = folder / "proc"
    text = {name: (proc / name).read_text() for name in SYSTEM}
    text |= {name: (proc / "1" / name).read_text() for name in PROCESS}
    wrong = []
    vmstat = counters(text["vmstat"])
    for name in ("thp_fault_alloc", "thp_fault_fallback", "thp_split_pmd"):
        if vmstat[name] != metrics[name]:
            wrong.append(f"{name} is {vmstat[name]} in vmstat, {metrics[name]} in the result")
    wrong += [f"maps: {line}" for line in text["maps"].splitlines() if not MAPS_LINE.match(line)]
    headers = [line for line in text["smaps"].splitlines() if MAPS_LINE.match(line)]
    if headers != text["maps"].splitlines():
        wrong.append("smaps has other mappings than maps")
    for label in ("Rss", "Anonymous", "AnonHugePages"):
        if kilobytes(text["smaps"], label) != kilobytes(text["smaps_rollup"], label):
            wrong.append(f"{label} of smaps doesn't add up to smaps_rollup")
    if kilobytes(text["meminfo"], "AnonHugePages") < kilobytes(text["smaps"], "AnonHugePages"):
        wrong.append("meminfo has fewer huge pages than the process")
    if kilobytes(text["smaps"], "Size") != int(re.search(r"VmSize:\s+([0-9]+) kB",
                                                         text["status"])[1]):
        wrong.append("the sizes in smaps don't add up to VmSize")
    thp = folder / "sys/kernel/mm/transparent_hugepage"
    if "[" not in (thp / "enabled").read_text():
        wrong.append("enabled marks no value")
    if int((thp / "khugepaged/pages_to_scan").read_text()) <= 0:
        wrong.append("pages_to_scan is 0")
    return wrong


def run(faultline, *options):
    return subprocess.run([faultline, "run", SCENARIO, "--quiet", *options], capture_output=True,
                          text=True, timeout=120, check=False)


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "out"
        done = run(sys.argv[1], "--proc", folder, "--json", "-")
        result = json.loads(done.stdout)
        for variant in result["variants"]:
            wrong += [f"{variant['name']}: {w}" for w in
                      check_variant(folder / variant["name"], variant["metrics"])]
        wrong += [f"left over: {path}" for path in folder.rglob("*.part*")]
        again = pathlib.Path(temporary) / "again"
        run(sys.argv[1], "--proc", again, "--jobs", "2")
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            if path.read_bytes() != (again / path.relative_to(folder)).read_bytes():
                wrong.append(f"{path.relative_to(folder)} differs from run to run")
        in_the_way = pathlib.Path(temporary) / "file"
        in_the_way.write_text("")
        refused = run(sys.argv[1], "--proc", in_the_way)
        if refused.returncode != 2 or "--proc" not in refused.stderr:
            wrong.append(f"a file as folder: {refused.returncode} {refused.stderr}")
    print("\n".join(wrong) or "as it must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
