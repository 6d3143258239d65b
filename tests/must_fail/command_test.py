# SPDX-License-Identifier: Apache-2.0
"""What the command does with a scenario that must be refused: the message on stderr, nothing on
stdout, exit status 2, and no file written.

usage: command_test.py FAULTLINE, from the source folder
"""
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path("tests/must_fail")
OPTION = "# --set "


def refused(faultline, scenario, folder):
    """What is wrong with how the command refuses the scenario; empty if nothing."""
    first = scenario.read_text().splitlines()[0]
    options = ["--set", first.removeprefix(OPTION)] if first.startswith(OPTION) else []
    outputs = [folder / "out.json", folder / "out.csv", folder / "folded"]
    run = subprocess.run(
        [faultline, "run", str(scenario), *options, "--json", outputs[0], "--csv", outputs[1],
         "--folded", outputs[2]],
        capture_output=True, text=True, timeout=60, check=False)
    wrong = []
    if run.returncode != 2:
        wrong.append(f"exit status {run.returncode}, not 2")
    if run.stderr != scenario.with_suffix(".expected").read_text():
        wrong.append(f"said: {run.stderr}")
    if run.stdout:
        wrong.append(f"wrote to stdout: {run.stdout}")
    wrong += [f"wrote {path.name}" for path in outputs if path.exists()]
    return wrong


def main():
    scenarios = sorted(p for p in FOLDER.glob("*.toml") if not p.name.endswith(".profile.toml"))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for scenario in scenarios:
            wrong = refused(sys.argv[1], scenario, pathlib.Path(folder))
            failed += bool(wrong)
            for what in wrong:
                print(f"{scenario}: {what}")
    print(f"{len(scenarios)} scenarios, {failed} not refused as they must be")
    return 1 if failed or len(scenarios) < 25 else 0


if __name__ == "__main__":
    sys.exit(main())
