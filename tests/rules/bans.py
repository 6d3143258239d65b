# SPDX-License-Identifier: Apache-2.0
"""What would make a result depend on the host, the compiler, the hour or an earlier run."""

import re

from tree import PARTS

# Pattern, what to do instead.
BANNED = [
    (r"\bstd::\w+_distribution\b", "std:: distributions differ between libraries; draw with our own"),
    (r"\bstd::(shuffle|sample|random_shuffle|random_device|default_random_engine)\b",
     "is not the same everywhere; use the seeded streams"),
    (r"\b(system_clock|steady_clock|high_resolution_clock|gettimeofday|clock_gettime|timespec_get)\b",
     "the wall clock may not reach a result; time is Engine::now()"),
    (r"(?<![\w.>:])(std::)?time\s*\(\s*(nullptr|NULL|0)\s*\)", "the wall clock may not reach a result"),
    (r"(?<![\w.>:])(std::)?(s?rand|random|drand48|rand_r)\s*\(", "use the seeded streams"),
    (r"\b(std::|secure_)?getenv\b", "the environment may not reach a result; make it an option"),
    (r"\bthread_local\b", "state belongs to an object"),
    (r"\bstd::(multi)?(map|set)\s*<\s*(const\s+)?[\w:]+(\s*const)?\s*\*",
     "ordered by host address; key by an id"),
    (r"\bstd::hash\s*<\s*(const\s+)?[\w:]+\s*\*", "hashes a host address"),
    (r"%p\b|\bfmt::ptr\b", "prints a host address"),
    (r"-ffast-math|\bstd::execution::", "the order of floating-point operations must be fixed"),
]

# Files that stand outside the model: pattern, banned words they may use, why.
EXEMPT = [
    (r"^allocator/platform/native\b", r"getenv|thread_local|clock_gettime", "the real world"),
    (r"^scenarios/run/native_run\b", r"clock_gettime", "measures the real world"),
    (r"^allocator/jemalloc53/library\b", r"thread_local|clock_gettime|getenv",
     "names of what the real library is given instead; its data of a host thread"),
    (r"^allocator/preload\b", r"getenv|thread_local", "the preload library's tunables and its one object"),
    (r"^scenarios/cli/progress\b", r"steady_clock", "the bar on a terminal; never in a result"),
]

_UNORDERED = re.compile(r"\bunordered_(?:multi)?(?:map|set)\b")


def _exempt(path, text):
    return any(re.search(file, path) and re.search(words, text) for file, words, _ in EXEMPT)


def nondeterminism(tree):
    names = _unordered_names(tree)
    for path in tree.cxx(PARTS):
        for number, line in enumerate(tree.code(path).splitlines(), 1):
            for pattern, advice in BANNED:
                match = re.search(pattern, line)
                if match and not _exempt(path, match.group(0)):
                    yield path, number, f"{match.group(0).strip()}: {advice}"
            yield from _unordered_walk(path, number, line, names)


def _unordered_names(tree):
    """Names of variables and members declared as unordered containers, by top-level folder."""
    names = {}
    for path in tree.cxx(PARTS):
        for match in _UNORDERED.finditer(tree.code(path)):
            rest = _after_template(tree.code(path), match.end())
            declared = re.match(r"\s*&?\s*(\w+)\s*[;={]", rest)
            if declared:
                names.setdefault(path.split("/")[0], set()).add(declared.group(1))
    return names


def _after_template(code, at):
    depth = 0
    for index in range(at, min(len(code), at + 500)):
        depth += {"<": 1, ">": -1}.get(code[index], 0)
        if depth == 0 and code[index] == ">":
            return code[index + 1 : index + 200]
    return ""


def _unordered_walk(path, number, line, names):
    for name in names.get(path.split("/")[0], ()):
        if re.search(rf"for\s*\(.*:\s*(\w+(\.|->))*{name}\s*\)|\b{name}(\.|->)c?begin\s*\(", line):
            yield path, number, f"walks the unordered container {name}; its order differs between hosts"


_CONSTANT = re.compile(
    r"\b(const|constexpr|consteval|constinit\s+const|using|typedef|friend|template|class|struct|enum|union|"
    r"static_assert|concept|namespace|operator|return|asm)\b"
)
_VARIABLE = re.compile(r"^(static\s+|inline\s+|extern\s+|constinit\s+)*[A-Za-z_][\w:<>,\s*&\[\]]*[\s*&>](\w+)\s*(\[[^\]]*\]\s*)*(=.*|\{.*)?$", re.DOTALL)


def mutable_globals(tree):
    """Variables at namespace level, static data members and function-local statics that can change."""
    for path in tree.cxx(PARTS):
        if re.search(r"^allocator/(preload|platform/native|jemalloc53/library)\b", path):
            continue  # the real process has one heap and its pthread keys; one jemalloc, shared by all runs
        for line, text, inside_type in tree.outline(path).statements:
            if inside_type:
                continue  # static members: below
            head = text.split("=")[0]
            if not _CONSTANT.search(head) and "(" not in head and _VARIABLE.match(text):
                yield path, line, f"`{' '.join(text.split())[:60]}` is state outside any object"
        for number, line in enumerate(tree.code(path).splitlines(), 1):
            local = re.match(r"\s+static\s+(?!const|inline|assert|_assert)([\w:<>,*& ]+?)\s*[={;]", line)
            if local and "(" not in line.split("=")[0] and not _CONSTANT.search(line.split("=")[0]):
                yield path, number, f"`{line.strip()[:60]}` is state outside any object"
