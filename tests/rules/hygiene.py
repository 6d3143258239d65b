# SPDX-License-Identifier: Apache-2.0
"""Size, first lines, folders, READMEs, scenario files, notebooks, and names that don't belong here."""

import json
import posixpath
import re
import tomllib

from tree import FOLDERS

MAX_LINES = 400
MAX_FUNCTION = 60
ROOT_FILES = {
    "CMakeLists.txt", "CMakePresets.json", "embed.cmake", "CONTRIBUTING.md", "DESIGN.md", "LICENSE", "README.md",
    ".clang-format", ".clang-tidy", ".gitignore", ".gitattributes", "dev",
}
NO_FOLDERS = {"utils", "util", "common", "misc", "helpers"}
SPDX = "SPDX-License-Identifier: Apache-2.0"


def sizes(tree):
    for path in tree.files:
        if path.endswith((".cc", ".h", ".py", ".sh")) or path in ("dev", ".ci/run"):
            lines = tree.text(path).count("\n")
            if lines > MAX_LINES:
                yield path, MAX_LINES, f"{lines} lines; split the file at {MAX_LINES}"
    for path in tree.cxx():
        for line, length, head in tree.outline(path).functions:
            if length > MAX_FUNCTION:
                name = re.search(r"([\w:~]+)\s*\(", head)
                yield path, line, f"{name.group(1) if name else 'function'} has {length} lines; at most {MAX_FUNCTION}"


def spdx(tree):
    for path in tree.files:
        text = tree.text(path) if _is_source(path) else SPDX
        first = text.splitlines()[:2] if text.startswith("#!") else text.splitlines()[:1]
        if not any(SPDX in line for line in first):
            yield path, 1, f"the first line must say {SPDX}"


def _is_source(path):
    return path.endswith((".cc", ".h", ".py", ".sh", ".cmake", "CMakeLists.txt")) or path in ("dev", ".ci/run")


def folders(tree):
    """Only the folders of the house; each with a README; none that says nothing about its contents."""
    for path in tree.files:
        top = path.split("/")[0]
        if top == path and path not in ROOT_FILES:
            yield path, 1, "is no root file of the house (tests/rules/hygiene.py lists them)"
        elif top != path and top not in FOLDERS and top != ".ci":
            yield path, 1, f"there is no folder {top}/ in the house: {' '.join(FOLDERS)}"
        bad = NO_FOLDERS.intersection(path.split("/")[:-1])
        if bad:
            yield path, 1, f"a folder called {bad.pop()} says nothing about what lives there"
    for folder in FOLDERS:
        if any(f.startswith(folder + "/") for f in tree.files) and f"{folder}/README.md" not in tree.files:
            yield f"{folder}/README.md", 1, "is missing: purpose, what the folder may include, where to start reading"


_FENCE = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def readme_commands(tree):
    """Commands shown in fences exist, and so do the files that links and commands name."""
    known = _dev_commands(tree)
    for path in (p for p in tree.files if p.endswith(".md")):
        text = tree.text(path)
        for fence in _FENCE.finditer(text):
            for offset, line in enumerate(fence.group(1).splitlines(), text[: fence.start()].count("\n") + 2):
                yield from _command(tree, path, offset, line, known)
        for link in re.finditer(r"\]\(([^)#:\s]+)(#[^)]*)?\)", text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link.group(1)))
            if target not in tree.files and not (tree.root / target).is_dir():
                yield path, text[: link.start()].count("\n") + 1, f"links to {link.group(1)}, which doesn't exist"


def _dev_commands(tree):
    if "dev" not in tree.files:
        return set()
    return set(re.findall(r"^cmd_(\w+)\(\)", tree.text("dev"), re.MULTILINE)) | {"help"}


def _command(tree, path, number, line, known):
    used = re.match(r"\s*(?:\$ )?(?:sudo )?\./dev(?: +(\w+))?", line)
    if used and used.group(1) and used.group(1) not in known:
        yield path, number, f"./dev has no command {used.group(1)}; there are: {' '.join(sorted(known))}"
    if used or re.match(r"\s*(\$ )?(\S*/)?faultline ", line):
        for name in re.findall(rf"(?<![\w/])(?:{'|'.join(FOLDERS)})/[\w./-]+\.\w+", line.split("#")[0]):
            if name not in tree.files:
                yield path, number, f"the command names {name}, which doesn't exist"


# Places on somebody's machine, and references to papers that are not in this repository.
LOCAL = [
    (r"/(?:home|root|Users|mnt|wor[k])/[\w.]+", "a place on somebody's machine"),
    (r"/tm[p]/(?:team|hub)\b", "a place on somebody's machine"),
    (r"\b(?:reference|shared)/[\w_]+\.(?:md|jsonl|txt)", "cite the public source, not a private note"),
    (r"(?i)\b(?:kernel|glibc malloc|workload) facts,? (?:sections? )?\d", "cite the public source, not a private note"),
]


def local_names(tree):
    for path in tree.files:
        if path == "LICENSE":
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for pattern, why in LOCAL:
                match = re.search(pattern, line)
                if match and not path.endswith("rules/selftest.py"):
                    yield path, number, f"{match.group(0)!r}: {why}"


def scenario_library(tree):
    for path in tree.files:
        if not (path.startswith("scenarios/library/") and path.endswith(".toml")):
            continue
        try:
            scenario = tomllib.loads(tree.text(path))
        except tomllib.TOMLDecodeError as error:
            yield path, 1, f"is not TOML: {error}"
            continue
        for key in ("title", "source"):
            if not isinstance(scenario.get(key), str) or not scenario[key].strip():
                yield path, 1, f"needs a {key}"
        if not _has_key(scenario, "expect"):
            yield path, 1, "needs an [expect] table: what must hold, so that the file is its own test"


def _has_key(value, key):
    if isinstance(value, dict):
        return bool(value.get(key)) or any(_has_key(v, key) for v in value.values())
    return isinstance(value, list) and any(_has_key(v, key) for v in value)


def notebooks(tree):
    """Committed without outputs, nbformat 4.5 with cell ids, and named NN_what_it_teaches."""
    for path in (p for p in tree.files if p.endswith(".ipynb")):
        if not re.fullmatch(r"notebooks/\d\d_[a-z0-9_]+\.ipynb", path):
            yield path, 1, "must be notebooks/NN_what_it_teaches.ipynb"
        try:
            book = json.loads(tree.text(path))
        except json.JSONDecodeError as error:
            yield path, error.lineno, f"is not JSON: {error.msg}"
            continue
        if (book.get("nbformat"), book.get("nbformat_minor")) != (4, 5):
            yield path, 1, "must be nbformat 4.5"
        for index, cell in enumerate(book.get("cells", [])):
            if cell.get("outputs") or cell.get("execution_count"):
                yield path, 1, f"cell {index} has outputs: jupyter-nbconvert --clear-output --inplace {path}"
            if not cell.get("id"):
                yield path, 1, f"cell {index} has no id"
