#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command prints, held against what was approved.

  golden.py FAULTLINE            compare; status 1 and a diff where something changed
  golden.py FAULTLINE --approve  write what is printed now; look at the diff before you commit it

cases.txt holds a case a line: NAME STATUS ARGUMENTS.  NAME.txt is stdout, then stderr after a line
"--- stderr", if there is any.  Cases run in the root of the repository.
"""

import difflib
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def cases():
    for line in (HERE / "cases.txt").read_text().splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words[0], int(words[1]), words[2:]


def printed(faultline, arguments):
    done = subprocess.run([faultline, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    text = done.stdout
    if done.stderr:
        text += "--- stderr\n" + done.stderr
    return done.returncode, text


def main(faultline, approve):
    wrong = 0
    for name, status, arguments in cases():
        file = HERE / f"{name}.txt"
        got_status, got = printed(faultline, arguments)
        if got_status != status:
            wrong += 1
            print(f"{name}: exit status {got_status}, not {status}\n{got[-2000:]}")
            continue
        if approve:
            file.write_text(got)
            continue
        want = file.read_text() if file.exists() else ""
        if got != want:
            wrong += 1
            diff = difflib.unified_diff(want.splitlines(), got.splitlines(), f"{name}.txt", "printed", lineterm="")
            print("\n".join(diff))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), "--approve" in sys.argv[2:]))
