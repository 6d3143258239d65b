# SPDX-License-Identifier: Apache-2.0
"""Who may include and link whom: the table of CONTRIBUTING.md, as data."""

import posixpath
import re

from tree import FOLDERS, PARTS

# Our folders, and the library prefixes of <…> includes, that each folder may include.
ALLOWED = {
    "sim": ({"sim"}, {"boost/context", "fmt", "sanitizer"}),
    "arch_profiles": ({"sim", "arch_profiles"}, {"fmt", "toml++"}),
    "kernel_model": ({"sim", "arch_profiles", "kernel_model"}, {"fmt"}),
    "allocator": ({"allocator"}, {"posix"}),
    "scenarios": (set(PARTS), {"boost", "fmt", "toml++", "nlohmann", "Eigen", "posix"}),
    "tests": (
        set(PARTS) | {"tests"},
        {"boost", "fmt", "toml++", "nlohmann", "Eigen", "posix", "gtest", "gmock", "benchmark"},
    ),
}
# The one bridge between the allocators and the model.
BRIDGE = "allocator/platform/model"
BRIDGE_ALLOWED = ({"allocator", "sim", "kernel_model"}, {"posix", "fmt"})

# Single headers beyond the table: file, header, why.
EXEMPT = [("kernel_model/phys/lazy_memory.cc", "sys/mman.h", "one entry a frame, backed by the host when first used")]

# Slow to compile: in .cc files only.
HEAVY = ("boost/program_options", "toml++", "nlohmann", "Eigen")

LINKS = {
    "sim": {"Boost::context", "fmt::fmt"},
    "arch_profiles": {"faultline::sim", "fmt::fmt", "tomlplusplus::tomlplusplus"},
    "kernel_model": {"faultline::sim", "faultline::arch_profiles", "fmt::fmt"},
    "allocator": {"Threads::Threads"},
    "scenarios": {f"faultline::{part}" for part in PARTS} | {"faultline::platform_model", "Threads::Threads",
                  "Boost::program_options",
                  "fmt::fmt", "tomlplusplus::tomlplusplus", "nlohmann_json::nlohmann_json", "Eigen3::Eigen"},
}
# Targets that hold nothing but options of the compiler.
COMPILER_FLAGS = {"faultline_dev_flags", "faultline_fat_objects", "faultline_whole_program"}
BRIDGE_LINKS = {"faultline::allocator", "faultline::sim", "faultline::kernel_model", "fmt::fmt"}

_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def includes(tree, path):
    for number, line in enumerate(tree.text(path).splitlines(), 1):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def library(header):
    """'' for the C++ and C standard library, 'posix' for system headers, else the library's prefix."""
    if "/" not in header:
        c_standard = re.fullmatch(r"(assert|errno|float|limits|math|signal|std\w+|string|time)\.h", header)
        return "posix" if header.endswith(".h") and not c_standard else ""
    prefix = header.split("/")[0]
    if prefix in ("sys", "linux", "asm", "gnu"):
        return "posix"
    return prefix


def include_directions(tree):
    for path in tree.cxx():
        folder = path.split("/")[0]
        if folder not in ALLOWED:
            continue
        ours, libraries = BRIDGE_ALLOWED if path.startswith(BRIDGE) else ALLOWED[folder]
        for line, quoted, header in includes(tree, path):
            if quoted:
                yield from _our_include(tree, path, line, header, ours)
            else:
                yield from _library_include(path, line, header, libraries)


def _our_include(tree, path, line, header, ours):
    target = header.split("/")[0]
    if "/" not in header or target not in FOLDERS:
        yield path, line, f'"{header}" must start at a folder of the house, e.g. "sim/{posixpath.basename(header)}"'
    elif target not in ours:
        yield path, line, f"{path.split('/')[0]} may not include {target} (\"{header}\"); allowed: {' '.join(sorted(ours))}"
    elif header not in tree.files:
        yield path, line, f'there is no file "{header}"'


def _library_include(path, line, header, libraries):
    name = library(header)
    if any((path, header) == exempt[:2] for exempt in EXEMPT):
        return
    if name and not any(header.startswith(allowed) or name == allowed for allowed in libraries):
        yield path, line, f"<{header}> ({name}) is not allowed here; allowed: std {' '.join(sorted(libraries))}"
    if path.endswith(".h") and header.startswith(HEAVY):
        yield path, line, f"<{header}> is slow to compile: include it in a .cc file only"


def include_circles(tree):
    graph = {path: {h for _, quoted, h in includes(tree, path) if quoted} for path in tree.cxx()}
    done = set()

    def visit(path, trail):
        if path in trail:
            circle = trail[trail.index(path) :] + [path]
            yield path, 1, "includes in a circle: " + " -> ".join(circle)
        elif path not in done:
            for header in sorted(graph.get(path, ())):
                yield from visit(header, trail + [path])
            done.add(path)

    for path in sorted(graph):
        yield from visit(path, [])


_LINK = re.compile(r"target_link_libraries\s*\(\s*(\S+)([^)]*)\)")
_LIBRARY = re.compile(r"add_(?:library|executable)\s*\(\s*(\S+)([^)]*)\)")


def link_graph(tree):
    for part in PARTS:
        path = f"{part}/CMakeLists.txt"
        if path not in tree.files:
            continue
        text = re.sub(r"#[^\n]*", "", tree.text(path))
        bridges = {
            name for name, sources in _LIBRARY.findall(text) if part == "allocator" and "platform/model." in sources
        }
        for match in _LINK.finditer(text):
            allowed = BRIDGE_LINKS if match.group(1) in bridges else LINKS[part]
            for item in re.findall(r"[\w]+::[\w]+|\bfaultline_\w+", match.group(2)):
                if item not in allowed and item not in COMPILER_FLAGS and not _own(item, text):
                    line = text[: match.start()].count("\n") + 1
                    yield path, line, f"{match.group(1)} may not link {item}; allowed: {' '.join(sorted(allowed))}"


def _own(item, text):
    """A target that the same file defines (faultline_x, or its alias faultline::x)."""
    return re.search(rf"add_(library|executable)\s*\(\s*{re.escape(item)}\s", text) is not None


def sources_listed(tree):
    """Each source is in a CMakeLists.txt; no globbing of sources."""
    lists = {p for p in tree.files if posixpath.basename(p) == "CMakeLists.txt"}
    for path in sorted(lists):
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            if re.search(r"^\s*file\s*\(\s*GLOB.*\*\.(cc|h|cpp)\b", line, re.IGNORECASE):
                yield path, number, "list the files; globbing forgets new ones"
    named = set()
    for path in lists:
        for name in re.findall(r"[\w./-]+\.cc\b", tree.text(path)):
            named.add(posixpath.normpath(posixpath.join(posixpath.dirname(path), name)))
    for path in tree.cxx():
        if path.endswith(".cc") and path not in named:
            yield path, 1, "is in no CMakeLists.txt, so nothing builds it"
