# SPDX-License-Identifier: Apache-2.0
"""The source tree as the rules see it: which files count, their text, C++ without comments, and a
rough outline of a C++ file (functions and namespace-level statements)."""

import functools
import re
import subprocess

PARTS = ["sim", "arch_profiles", "kernel_model", "allocator", "scenarios"]
FOLDERS = PARTS + ["tests", "notebooks"]


class Tree:
    """The files of a repository: tracked or new ones by git, else all that is not build output."""

    def __init__(self, root):
        self.root = root
        self.files = sorted(self._list())

    def _list(self):
        git = ["git", "-C", str(self.root), "ls-files", "-co", "--exclude-standard"]
        if (self.root / ".git").exists():
            answer = subprocess.run(git, capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                return [f for f in answer.stdout.splitlines() if (self.root / f).is_file()]
        return [
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_file()
            and path.relative_to(self.root).parts[0] not in ("build", ".git", ".cache")
            and "__pycache__" not in path.parts
        ]

    @functools.cache
    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @functools.cache
    def code(self, path):
        return strip(self.text(path))

    @functools.cache
    def outline(self, path):
        return Outline(self.code(path))

    def cxx(self, folders=None):
        """The C++ files, of the given top-level folders only if any are given."""
        for path in self.files:
            if path.endswith((".cc", ".h")) and (folders is None or path.split("/")[0] in folders):
                yield path


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


def strip(text):
    """C++ with comments blanked and the contents of literals removed; lines stay where they were."""

    def blank(match):
        token = match.group(0)
        newlines = "\n" * token.count("\n")
        if token.startswith("/"):
            return newlines or " "
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if before.strip().startswith("#"):
            return token  # keeps #include "…"
        return '""' + newlines if '"' in token[:6] else "' '"

    return _TOKEN.sub(blank, text)


class Outline:
    """Functions as (line, length, head) and namespace-level statements as (line, text).

    Braces are matched and each is classed by the statement before it: a scope (namespace, class,
    enum …), a function body, or part of an expression.  Good for clang-formatted code.
    """

    _SCOPE = re.compile(r"^\s*(template\s*<.*>\s*)?(inline\s+)?(namespace|class|struct|union|enum|extern\s*\"\")\b", re.DOTALL)

    def __init__(self, code):
        self.functions, self.statements = [], []
        self._scopes = []  # of open braces: "namespace", "type", "function" or "expression"
        self._line, self._head, self._start = 1, "", 1
        self._function = None
        for line in code.splitlines(keepends=True):
            if not line.lstrip().startswith("#"):
                for char in line:
                    self._eat(char)
            self._line += 1

    def _inside_function(self):
        return "function" in self._scopes

    def _eat(self, char):
        if self._inside_function():
            self._eat_in_function(char)
        elif char == "{":
            self._open()
        elif char == "}":
            self._close()
        elif char == ";" and "expression" not in self._scopes:
            self._statement()
        else:
            if not self._head.strip() and not char.isspace():
                self._start = self._line
            self._head += char

    def _eat_in_function(self, char):
        if char == "{":
            self._scopes.append("block")
        elif char == "}" and self._scopes.pop() == "function":
            self.functions.append((self._start, self._line - self._start + 1, self._head.strip()))
            self._head = ""

    def _open(self):
        head = self._head.strip()
        if re.search(r"(^|[:]\s*)(public|private|protected)\s*:$", head):
            head = ""
        scope = self._SCOPE.match(head) and not re.search(r"[)=]\s*(const|noexcept)?$", head)
        if scope:
            self._scopes.append("namespace" if "namespace" in head else "type")
            self._head = ""
        elif self._starts_body(head):
            self._scopes.append("function")
        else:
            self._scopes.append("expression")
            self._head += "{"

    @staticmethod
    def _starts_body(head):
        if "(" not in head or re.search(r"[=,(]$|\breturn$|\bconcept\b", head):
            return False
        init = re.search(r"\)\s*(noexcept\s*)?:(?!:)", head)
        # In a constructor's initialiser list `name{` opens a value; `name(…) {` or `name{…} {` the body.
        return not (init and re.search(r"[\w>]$", head[init.end() :]))

    def _close(self):
        if self._scopes and self._scopes.pop() == "expression":
            self._head += "}"
        else:
            self._head = ""

    def _statement(self):
        inside_type = "type" in self._scopes
        text = re.sub(r"^((public|private|protected)\s*:\s*)+", "", self._head.strip())
        if text:
            self.statements.append((self._start, text, inside_type))
        self._head = ""
