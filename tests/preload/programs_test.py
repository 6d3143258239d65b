#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real programs on the preload libraries: programs_test.py GLIBC_LIBRARY JEMALLOC_LIBRARY CONFORMANCE.

Each must end as it does without the library and print the same.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

RELEASES = ["2.23", "2.26", "2.36", "2.39", "2.43-x86", "2.43-aarch64", "2.44"]
TUNABLES = ["", "glibc.malloc.hugetlb=1", "glibc.malloc.hugetlb=2",
            "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0:glibc.malloc.perturb=90"]

CONFS = ["", "narenas:1,tcache:false", "purge:free,lg_dirty_mult:0", "purge:vrange", "dirty_decay_ms:0",
         "lg_chunk:20,munmap:true"]

PYTHON = """
import json, threading
def work(): [bytes(i) for i in range(3000)]
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(json.dumps({str(i): [i] * (i % 40) for i in range(20000)})))
"""
CPLUSPLUS = """#include <map>
#include <string>
int main() { std::map<int, std::string> m; for (int i = 0; i < 1000; ++i) m[i] = std::to_string(i);
             return m.size() == 1000 ? 0 : 1; }
"""


def environment_of(library, release, settings=""):
    """The library's, with MALLOC_CONF or GLIBC_TUNABLES; without one, none of malloc's from outside."""
    outside = ("GLIBC_TUNABLES", "LD_PRELOAD", "FAULTLINE_MALLOC", "MALLOC_CONF")
    environment = {k: v for k, v in os.environ.items() if k not in outside}
    if library:
        environment |= {"LD_PRELOAD": library, "FAULTLINE_MALLOC": release,
                        "MALLOC_CONF" if release == "jemalloc" else "GLIBC_TUNABLES": settings}
    return environment


def run(command, library=None, release=None, settings="", cwd=None):
    return subprocess.run(command, env=environment_of(library, release, settings), cwd=cwd, capture_output=True,
                          text=True, check=False, timeout=300)


def redis(library, release, folder):
    """A server on the library under redis-benchmark, over a socket of its own; '' or what went wrong."""
    socket = str(pathlib.Path(folder, f"redis-{release}"))
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", folder],
        env=environment_of(library, release), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for _ in range(100):
            if pathlib.Path(socket).exists() or server.poll() is not None:
                break
            time.sleep(0.05)
        if library not in pathlib.Path(f"/proc/{server.pid}/maps").read_text():
            return "the library is not in the server"
        bench = subprocess.run(["redis-benchmark", "-s", socket, "-q", "-n", "3000", "-t", "set,get,lpush,lrange_100"],
                               capture_output=True, text=True, check=False, timeout=120)
        if bench.returncode != 0 or bench.stdout.count("requests per second") < 4:
            return f"redis-benchmark: {bench.stdout[-300:]}{bench.stderr[-300:]}"
        subprocess.run(["redis-cli", "-s", socket, "shutdown", "nosave"], capture_output=True, check=False, timeout=60)
        return "" if server.wait(timeout=60) == 0 else f"the server ended with {server.returncode}"
    finally:
        server.kill()
        server.wait()


def main(glibc, jemalloc, conformance):
    wrong = 0

    def compare(name, command, releases=RELEASES, tunables=("",), cwd=None):
        nonlocal wrong
        expected = run(command, cwd=cwd)
        for release in releases:
            for tunable in tunables:
                library = jemalloc if release == "jemalloc" else glibc
                got = run(command, library, release, tunable, cwd)
                if (got.returncode, got.stdout) != (expected.returncode, expected.stdout):
                    wrong += 1
                    print(f"{name} on {release} {tunable}: status {got.returncode}, not "
                          f"{expected.returncode}\n{got.stdout[-500:]}{got.stderr[-1000:]}")

    compare("conformance", [conformance, "16"], tunables=TUNABLES)
    compare("conformance of 64 threads", [conformance, "64"], releases=["2.36", "2.44"])
    compare("conformance", [conformance, "16", "without-reports"], releases=["jemalloc"], tunables=CONFS)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "a.cc")
        source.write_text(CPLUSPLUS)
        programs = {
            "bash": ["bash", "-c", "for i in $(seq 300); do x=$(echo $i); s=$s$x; done; echo ${#s}; ls / | sort"],
            "python3": [sys.executable, "-c", PYTHON],
            "git": ["git", "--version"],
            "a C++ compiler": ["c++", "-O1", "-o", str(pathlib.Path(folder, "a.out")), str(source)],
        }
        for name, command in programs.items():
            if shutil.which(command[0]):
                compare(name, command, releases=["2.23", "2.36", "2.44", "jemalloc"])
        for release in ("2.23", "2.36", "2.44"):
            if shutil.which("redis-server") and (problem := redis(glibc, release, folder)):
                wrong += 1
                print(f"redis-server on {release}: {problem}")
            if shutil.which("stress-ng"):
                done = run(["stress-ng", "--malloc", "2", "--malloc-ops", "5000", "--malloc-pthreads", "4", "--verify"],
                           glibc, release, cwd=folder)
                if done.returncode != 0 or "unsuccessful" in done.stderr:
                    wrong += 1
                    print(f"stress-ng --malloc on {release}: status {done.returncode}\n{done.stderr[-500:]}")
    # What the user got wrong is said, and the program runs.
    for library, release, settings, expected in (
            (jemalloc, "jemalloc", "prge:free,narenas:0,purge:free",
             'faultline: MALLOC_CONF: passed over: "prge:free"\nfaultline: MALLOC_CONF: passed over: "narenas:0"\n'),
            (glibc, "2.99", "", 'faultline: FAULTLINE_MALLOC: there is no release "2.99"; 2.36 is used\n')):
        got = run(["bash", "-c", "exit 0"], library, release, settings)
        if (got.returncode, got.stderr) != (0, expected):
            wrong += 1
            print(f"a wrong setting of {release}: status {got.returncode}, said:\n{got.stderr}")
    absent = [name for name in ("redis-server", "stress-ng") if not shutil.which(name)]
    if absent:
        print(f"not run, as they are not installed: {' '.join(absent)}")
    print("programs differ:" if wrong else "all programs run as on their own malloc", wrong or "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
