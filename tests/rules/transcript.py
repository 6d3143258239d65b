#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that a document shows: transcript.py FAULTLINE DOCUMENT...

In ```sh fences, lines that start with `./dev run` or name the faultline command are run with the
given binary from the root; each must exit with 0.  Other lines are left alone.
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT = "scenarios/library/arm64_64k/mallocstress.toml"


def command(line, faultline):
    """The arguments to run for a shown line, or None."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["./dev", "run"]:
        rest = words[2:]
        file = [] if rest and not rest[0].startswith("-") else [DEFAULT]
        return [faultline, "run", *file, *rest]
    if words and re.fullmatch(r"(build/release/)?faultline", words[0]):
        return [faultline, *words[1:]]
    return None


def commands(document, faultline):
    for fence in re.finditer(r"^```sh\n(.*?)^```", document, re.DOTALL | re.MULTILINE):
        for line in fence.group(1).splitlines():
            arguments = command(line, faultline)
            if arguments:
                yield line, arguments


def main(faultline, documents):
    failed, count = 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        for document in documents:
            for line, arguments in commands((ROOT / document).read_text(), faultline):
                # Files that a command writes land in the scratch folder.
                arguments = [re.sub(r"^([\w-]+\.(json|csv))$", rf"{scratch}/\1", a) for a in arguments]
                count += 1
                done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
                print(f"{document}: {line.strip()} -> {done.returncode}")
                if done.returncode != 0:
                    failed += 1
                    print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
    if count == 0:
        print("no document shows a command")
    return 1 if failed or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]))
