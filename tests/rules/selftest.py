#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of check.py finds what it should in a small bad tree, and nothing in a good one."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import check  # noqa: E402
from tree import Outline, strip  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def found(rule, files):
    """The findings of one rule on a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = pathlib.Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return list(check.findings(root, [rule]))


class Rules(unittest.TestCase):
    def finds(self, rule, files, *words):
        lines = found(rule, files)
        self.assertEqual(len(lines), 1, lines)
        for word in words:
            self.assertIn(word, lines[0])

    def passes(self, rule, files):
        self.assertEqual(found(rule, files), [])

    def test_includes(self):
        header = {"sim/a.h": "", "kernel_model/k.h": "", "scenarios/s.h": ""}
        self.finds("includes", {"sim/a.cc": '#include "kernel_model/k.h"\n', **header}, "sim/a.cc:1", "may not include")
        self.finds("includes", {"kernel_model/k.cc": '\n#include "scenarios/s.h"\n', **header}, "k.cc:2")
        self.finds("includes", {"sim/a.cc": '#include "a.h"\n', **header}, "must start at a folder")
        self.finds("includes", {"sim/a.cc": '#include "sim/b.h"\n', **header}, "no file")
        self.finds("includes", {"allocator/p/m.h": '#include "sim/a.h"\n', **header}, "allocator may not")
        self.finds("includes", {"allocator/platform/native.cc": '#include "kernel_model/k.h"\n', **header}, "may not")
        self.finds("includes", {"sim/a.cc": "#include <toml++/toml.h>\n"}, "not allowed")
        self.finds("includes", {"kernel_model/a.cc": "#include <sys/mman.h>\n"}, "posix")
        self.finds("includes", {"scenarios/a.h": "#include <nlohmann/json.hpp>\n"}, "slow")
        self.passes("includes", {"allocator/platform/model.cc": '#include "kernel_model/k.h"\n#include "sim/a.h"\n', **header})
        self.passes("includes", {"scenarios/a.cc": '#include <nlohmann/json.hpp>\n#include "sim/a.h"\n', **header})
        self.passes("includes", {"sim/b.cc": '#include <boost/context/fiber.hpp>\n// #include "scenarios/s.h"\n'})

    def test_circles(self):
        self.finds("circles", {"sim/a.h": '#include "sim/b.h"\n', "sim/b.h": '#include "sim/a.h"\n'}, "a.h -> sim/b.h -> sim/a.h")
        self.passes("circles", {"sim/a.h": '#include "sim/b.h"\n', "sim/b.h": "", "sim/c.h": '#include "sim/b.h"\n#include "sim/a.h"\n'})

    def test_links(self):
        up = "target_link_libraries(faultline_sim PUBLIC\n  faultline::kernel_model PRIVATE faultline_dev_flags)\n"
        self.finds("links", {"sim/CMakeLists.txt": up}, "CMakeLists.txt:1", "may not link faultline::kernel_model")
        bridge = ("add_library(faultline_allocator STATIC a.cc)\n"
                  "add_library(faultline_platform_model STATIC platform/model.cc)\n"
                  "target_link_libraries(faultline_platform_model PUBLIC faultline::kernel_model faultline_allocator)\n")
        self.passes("links", {"allocator/CMakeLists.txt": bridge})
        self.finds("links", {"allocator/CMakeLists.txt": bridge + "target_link_libraries(faultline_allocator PUBLIC faultline::sim)\n"},
                   "faultline_allocator may not link faultline::sim")

    def test_listed(self):
        self.finds("listed", {"sim/CMakeLists.txt": "add_library(s a.cc)\n", "sim/a.cc": "", "sim/b.cc": ""}, "sim/b.cc")
        self.finds("listed", {"sim/CMakeLists.txt": "FILE(GLOB all *.cc)\n"}, "globbing")
        self.passes("listed", {"kernel_model/CMakeLists.txt": "add_library(k mm/a.cc)\n", "kernel_model/mm/a.cc": ""})

    def test_determinism(self):
        for code in ("std::uniform_int_distribution<int> d;", "auto t = std::chrono::steady_clock::now();",
                     "int r = rand();", "auto t = time(nullptr);", 'auto e = std::getenv("X");',
                     "thread_local int x;", "std::map<Task*, int> m;", "std::set<const Vma*> s;",
                     "std::shuffle(a, b, c);"):
            self.finds("determinism", {"sim/a.cc": SPDX + code + "\n"}, "sim/a.cc:2")
        self.passes("determinism", {"sim/a.cc": "// rand() and steady_clock in a comment\nauto s = \"rand()\"; brand(1); x.time(0);\n"})
        self.passes("determinism", {"scenarios/cli/progress.cc": "auto t = std::chrono::steady_clock::now();\n"})
        self.passes("determinism", {"tests/a.cc": "int r = rand();\n"})

    def test_unordered_walk(self):
        header = {"sim/a.h": "std::unordered_map<int, std::vector<int>> pages_;\n"}
        self.finds("determinism", {**header, "sim/a.cc": "for (auto& [k, v] : pages_) f(k);\n"}, "pages_")
        self.finds("determinism", {**header, "sim/a.cc": "auto i = pages_.begin();\n"}, "pages_")
        self.passes("determinism", {**header, "sim/a.cc": "auto i = pages_.find(3);\n"})

    def test_globals(self):
        for code in ("int counter = 0;", "static std::vector<int> all;", "namespace x {\nstd::string name;\n}",
                     "void f() {\n  static int calls = 0;\n}", "struct S {\n  static int count;\n};",
                     "inline std::map<int, int> table{};"):
            self.finds("globals", {"sim/a.cc": code + "\n"}, "state outside any object")
        for code in ("constexpr int kA = 1;", "const std::string kB = f();", "struct S { int x = 0; };",
                     "int f(int a);", "void f() {\n  static constexpr int k = 1;\n  int y = 0;\n}", "class A;",
                     "using B = int;", "inline constexpr int kC[] = {1, 2};", "namespace {\nconstexpr T kT{1, {2}};\n}",
                     "enum class E { kA, kB };", "bool operator==(A a, B b) { return true; }", "extern template class X<int>;"):
            self.passes("globals", {"sim/a.cc": code + "\n"})

    def test_size(self):
        self.finds("size", {"sim/a.cc": "\n" * 401}, "401 lines")
        self.passes("size", {"sim/a.cc": "\n" * 400})
        body = "  x();\n" * 59
        self.finds("size", {"sim/a.cc": "namespace n {\nvoid C::f() {\n" + body + "}\n}\n"}, "a.cc:2", "C::f has 61 lines")
        self.passes("size", {"sim/a.cc": "namespace n {\nvoid C::f() {\n" + body[7:] + "}\n}\n"})
        self.finds("size", {"tests/a.cc": "TEST(A, B) {\n" + body + "}\n"}, "TEST has 61")
        self.passes("size", {"sim/a.h": "struct S {\n" + "  int a;\n" * 100 + "};\n"})

    def test_spdx(self):
        self.finds("spdx", {"sim/a.cc": "\n" + SPDX}, "first line")
        self.passes("spdx", {"sim/a.cc": SPDX, "dev": "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"})

    def test_house(self):
        self.finds("house", {"lib/a.cc": ""}, "no folder lib/")
        self.finds("house", {"sim/README.md": "", "sim/utils/a.cc": ""}, "utils")
        self.finds("house", {"sim/a.cc": ""}, "sim/README.md", "missing")
        self.finds("house", {"notes.txt": ""}, "no root file")
        self.passes("house", {"README.md": "", "sim/README.md": "", "sim/a.cc": ""})

    def test_readme(self):
        dev = {"dev": "cmd_run() {\n}\n"}
        fence = "text\n```sh\n{}\n```\n"
        self.finds("readme", {**dev, "README.md": fence.format("./dev rum")}, "README.md:3", "rum")
        self.finds("readme", {**dev, "README.md": fence.format("./dev run scenarios/library/x.toml")}, "x.toml")
        self.finds("readme", {**dev, "README.md": "[a](sim/nowhere.md)"}, "doesn't exist")
        self.passes("readme", {**dev, "README.md": fence.format("./dev run   # the case") + "[a](dev) [b](https://x.org)"})

    def test_names(self):
        self.finds("names", {"sim/a.cc": "// see /ho" + "me/me/notes\n"}, "somebody's machine")
        self.finds("names", {"sim/a.cc": "// kernel " + "facts 2.1\n"}, "private note")
        self.passes("names", {"sim/a.cc": "// mm/huge_memory.c, /proc/self/smaps, /sys/kernel/mm\n"})

    def test_library(self):
        path = "scenarios/library/a/b.toml"
        self.finds("library", {path: 'title = "t"\n[expect]\na = ">= 1"\n'}, "needs a source")
        self.finds("library", {path: 'title = "t"\nsource = "s"\n'}, "expect")
        self.finds("library", {path: "title = \n"}, "not TOML")
        self.passes("library", {path: 'title = "t"\nsource = "s"\n[[variant]]\nexpect = { a = ">= 1" }\n'})

    def test_notebooks(self):
        path, head = "notebooks/01_a.ipynb", '"nbformat": 4, "nbformat_minor": 5'
        self.finds("notebooks", {path: '{"cells": [{"id": "a", "outputs": [{}]}], %s}' % head}, "outputs")
        self.finds("notebooks", {path: '{"cells": [{"outputs": []}], %s}' % head}, "no id")
        self.finds("notebooks", {path: '{"cells": [], "nbformat": 4, "nbformat_minor": 4}'}, "4.5")
        self.passes("notebooks", {path: '{"cells": [{"id": "a", "outputs": []}], %s}' % head})


class Reader(unittest.TestCase):
    def test_strip_keeps_lines_and_includes(self):
        text = '#include "a/b.h"  // x\n/* two\nlines */ int a = 1\'000; char c = \'"\'; auto s = "// no";\n'
        code = strip(text)
        self.assertEqual(code.count("\n"), text.count("\n"))
        self.assertIn('"a/b.h"', code)
        self.assertNotIn("two", code)
        self.assertNotIn("no", code)
        self.assertIn("1'000", code)

    def test_outline_finds_functions(self):
        code = """
namespace a {
Engine::Engine(Shape s) : shape_{s}, costs_(f({1})), all_{} {
  if (x) { y(); }
}
class C {
 public:
  C() : a_(1) {}
  int get() const { return a_; }
  int a_{0};
};
template <typename P>
std::vector<int> g(P p = {}) {
  auto l = [&](int i) { return i; };
  return {1, 2};
}
constexpr int kTable[] = {f(1), 2};
}
"""
        heads = [head.split("(")[0].split()[-1] for _, _, head in Outline(code).functions]
        self.assertEqual(heads, ["Engine::Engine", "C", "get", "g"])
        self.assertIn((17, "constexpr int kTable[] = {}", False),
                      [(line, text.replace("f(1), 2", ""), kind) for line, text, kind in Outline(code).statements])


if __name__ == "__main__":
    unittest.main()
