#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the house rules of CONTRIBUTING.md on a source tree: check.py [ROOT] [RULE...].

Each finding is one line, `file:line: rule: what is wrong and what to do`; exit status 1 if there is
any.  Only Python's standard library.  selftest.py shows each rule a tree that breaks it.
"""

import pathlib
import sys

sys.dont_write_bytecode = True

import bans  # noqa: E402
import hygiene  # noqa: E402
import layering  # noqa: E402
from tree import Tree  # noqa: E402

RULES = {
    "includes": layering.include_directions,
    "circles": layering.include_circles,
    "links": layering.link_graph,
    "listed": layering.sources_listed,
    "determinism": bans.nondeterminism,
    "globals": bans.mutable_globals,
    "size": hygiene.sizes,
    "spdx": hygiene.spdx,
    "house": hygiene.folders,
    "readme": hygiene.readme_commands,
    "names": hygiene.local_names,
    "library": hygiene.scenario_library,
    "notebooks": hygiene.notebooks,
}


def findings(root, rules=None):
    """All findings of the named rules (all rules when None) on the tree at root."""
    tree = Tree(pathlib.Path(root))
    for name in rules or RULES:
        for path, line, message in RULES[name](tree):
            yield f"{path}:{line}: {name}: {message}"


def main(arguments):
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parents[2]
    unknown = [name for name in arguments[1:] if name not in RULES]
    if unknown:
        print(f"no rule {unknown[0]!r}; there are: {' '.join(RULES)}", file=sys.stderr)
        return 2
    found = list(findings(root, arguments[1:] or None))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
