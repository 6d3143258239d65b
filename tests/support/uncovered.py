#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What no test reaches, from gcovr's JSON: uncovered.py FILE.

Each run of lines is shown with the source of its first one; the last line of the output is the sum.
"""
import json
import pathlib
import sys

report = json.loads(pathlib.Path(sys.argv[1]).read_text())
total = reached = 0
for file in sorted(report["files"], key=lambda f: f["file"]):
    counts = {}
    for line in file["lines"]:
        if not line.get("gcovr/noncode"):
            counts[line["line_number"]] = max(counts.get(line["line_number"], 0), line["count"])
    total += len(counts)
    reached += sum(1 for n in counts.values() if n > 0)
    missed = [n for n in sorted(counts) if counts[n] == 0]
    if not missed:
        continue
    name = file["file"]
    source = pathlib.Path(name).read_text().splitlines()
    print(f"{name}: {len(counts) - len(missed)} of {len(counts)} lines")
    code = sorted(counts)
    runs = [[missed[0], missed[0]]]
    for number in missed[1:]:
        # Lines without code between two missed ones don't end a run.
        if code.index(number) == code.index(runs[-1][1]) + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    for first, last in runs:
        where = f"{first}" if first == last else f"{first}-{last}"
        print(f"  {where}: {source[first - 1].strip()}")
print(f"kernel_model: {reached} of {total} lines are reached, {100 * reached / max(total, 1):.1f} %")
