# SPDX-License-Identifier: Apache-2.0
"""Each program of tests/oracle/bad/ is refused: exit status 2 and the message beside it.

The .expected files hold the whole of stderr.  After a change of wording: FAULTLINE_APPROVE=1, then
read the diff.
"""
import os
import pathlib
import subprocess
import sys

oracle = sys.argv[1]
folder = pathlib.Path("tests/oracle/bad")
programs = sorted(folder.glob("*.txt"))
failures = [] if len(programs) >= 10 else ["the folder of bad programs is nearly empty"]


def refused(arguments, expected_file):
    run = subprocess.run([oracle, *arguments], capture_output=True, text=True, timeout=60)
    if run.returncode != 2 or run.stdout:
        failures.append(f"{arguments}: exit status {run.returncode}, stdout {run.stdout!r}")
    if os.environ.get("FAULTLINE_APPROVE"):
        expected_file.write_text(run.stderr)
    elif run.stderr != expected_file.read_text():
        failures.append(f"{arguments}: says\n{run.stderr}instead of\n{expected_file.read_text()}")


for program in programs:
    refused(["--replay", str(program)], program.with_suffix(".expected"))
refused(["--replay", "tests/oracle/bad/no_such_file"], folder / "no_such_file.expected")
refused(["--opps", "1000"], folder / "unknown_option.expected")
refused(["--ops", "many"], folder / "ops_is_no_number.expected")
print("\n".join(failures) or f"{len(programs) + 3} inputs refused")
sys.exit(1 if failures else 0)
