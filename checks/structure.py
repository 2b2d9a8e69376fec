#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The large scale of the source: sizes of types, files, functions and crates, and cycles of imports (circles).

    checks/structure.py            compares the source with checks/structure.json, exit code 1 if it differs
    checks/structure.py --list     shows all figures
    checks/structure.py --update   writes checks/structure.json; only smaller figures should need it

The file has the figures that exceed the limits today. A figure may not grow. A figure that shrinks is
written to the file, so that it cannot grow again. The source is in the layout of rustfmt: a block ends
at the first line with a brace at its own indentation.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KNOWN = ROOT / "checks/structure.json"
PRODUCT = ["proto", "gateway", "dds", "tautline", "plan", "cli"]
LABORATORY = ["lab", "medium", "study", "restaurant"]
# These crates are for tests, but their types, files and functions have the same limits.
FOR_TESTS_ONLY = ["testkit"]

MAX_METHODS = 40
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_CIRCLE = 3

IMPL = re.compile(r"^impl(?:<.*?>)?\s+(?!.*\bfor\b)(?:[\w:]+::)?(\w+)")
DEFINITION = re.compile(r"^(?:pub(?:\([\w: ]+\))? )?(?:struct|enum) (\w+)", re.MULTILINE)
METHOD = re.compile(r"^    (?:pub(?:\([\w: ]+\))? )?(?:const |async |unsafe )*fn \w+")
FUNCTION = re.compile(r"^( *)(?:pub(?:\([\w: ]+\))? )?(?:const |async |unsafe )*fn (\w+)")
TEST_MODULE = re.compile(r"#\[cfg\((?:test|all\(test[^\]]*)\)\]\n(?:#\[[^\]]*\]\n)*(?:pub(?:\(\w+\))? )?mod (\w+);")
FOR_TESTS = re.compile(r"\s*#\[cfg\((?:test\b|all\(test\b|any\(test\b)")
OUTSIDE = re.compile(r'#\[path = "([^"]+)"\]')


def is_test(file, test_files):
    parts = file.relative_to(ROOT).parts
    named = file.stem in ("tests", "fuzzing") or file.stem.endswith("_tests") or "tests" in parts
    return named or any(file == test or test.with_suffix("") in file.parents for test in test_files)


class Source:
    """The Rust files of one crate."""

    def __init__(self, crate):
        self.folder = ROOT / "crates" / crate
        all_files = sorted((self.folder / "src").rglob("*.rs"))
        texts = {file: file.read_text() for file in all_files}
        tests = set()
        for file, text in texts.items():
            home = file.parent if file.stem in ("mod", "lib", "main") else file.with_suffix("")
            tests.update(home / f"{name}.rs" for name in TEST_MODULE.findall(text))
            tests.update(home / name / "mod.rs" for name in TEST_MODULE.findall(text))
        self.files = {file: without_tests(text) for file, text in texts.items() if not is_test(file, tests)}
        self.lines_of_files = {file: text.count("\n") for file, text in texts.items()}

    def lines_of_code(self):
        lines = (line.strip() for text in self.files.values() for line in text.split("\n"))
        return sum(1 for line in lines if line and not line.startswith("//"))

    def methods(self):
        """Methods of each type in blocks without a trait. If several types have the same name, the one
        that is defined nearest counts."""
        definitions = collections.defaultdict(list)
        for file, text in self.files.items():
            for name in DEFINITION.findall(text):
                definitions[name].append(module_of(file, self.folder))
        found = collections.Counter()
        for file, text in self.files.items():
            module = module_of(file, self.folder)
            type_name = None
            for line in text.split("\n"):
                if line.startswith("}"):
                    type_name = None
                elif line.startswith("impl"):
                    block = IMPL.match(line)
                    type_name = block and block.group(1)
                elif type_name and METHOD.match(line):
                    near = max(definitions[type_name] or [()], key=lambda it: common(it, module))
                    found["::".join((*near[1:], type_name))] += 1
        return found

    def functions(self):
        """Lines of each function."""
        for file, text in self.files.items():
            lines = text.split("\n")
            for number, line in enumerate(lines):
                start = FUNCTION.match(line)
                if not start or not has_body(lines[number:]):
                    continue
                end = start.group(1) + "}"
                length = next((n for n, later in enumerate(lines[number:], 1) if later == end), 1)
                yield f"{file.relative_to(ROOT)} {start.group(2)}", length

    def paths_outside(self):
        """Files of other crates that are compiled into this one or its tests."""
        for file in sorted(self.folder.rglob("*.rs")):
            for path in OUTSIDE.findall(file.read_text()):
                target = (file.parent / path).resolve()
                if self.folder not in target.parents:
                    yield f"{file.relative_to(ROOT)} -> {target.relative_to(ROOT)}"

    def circles(self):
        """Sets of modules that import each other."""
        modules = {module_of(file, self.folder): text for file, text in self.files.items()}
        edges = {module: set() for module in modules}
        for module, text in modules.items():
            for path in imported(text, module):
                while path and path not in modules:
                    path = path[:-1]
                if path and path != module:
                    edges[module].add(path)
        return [circle for circle in components(edges) if len(circle) > 1]


def has_body(lines):
    """Whether the function that begins at the first line has a body; a required method of a trait has none."""
    last = next((line for line in lines if line.endswith(("{", "}", ";"))), "")
    return not last.endswith(";")


def without_tests(text):
    """Removes code that is compiled only for tests: modules, functions and declarations."""
    kept, lines, number = [], text.split("\n"), 0
    while number < len(lines):
        line = lines[number]
        if not FOR_TESTS.match(line):
            kept.append(line)
            number += 1
            continue
        indent = line[: len(line) - len(line.lstrip())]
        # The item ends with its first line, or at a brace at its own indentation.
        while lines[number].strip().startswith("#["):
            number += 1
        is_block = not lines[number].endswith((";", ","))
        while is_block and lines[number] != indent + "}":
            number += 1
        number += 1
    return "\n".join(kept)


def common(one, other):
    """Returns the number of words with which both begin."""
    pairs = list(zip(one, other))
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))


def module_of(file, folder):
    parts = list(file.relative_to(folder / "src").with_suffix("").parts)
    if parts[-1] in ("mod", "lib", "main"):
        parts.pop()
    return ("crate", *parts)


def imported(text, module):
    """The paths that a module uses, from the root of the crate."""
    text = re.sub(r"//.*", "", text)
    for statement in re.findall(r"\buse ([^;]+);", text):
        for path in expanded(re.sub(r"\s+", " ", statement)):
            yield from resolved(path, module)
    for path in re.findall(r"\b((?:crate|super)(?:::\w+)+)", text):
        yield from resolved(path, module)


def resolved(path, module):
    words = [word for word in path.replace(" ", "").split("::") if word]
    if not words:
        return
    if words[0] == "crate":
        yield tuple(words)
    elif words[0] in ("super", "self"):
        base = module
        while words and words[0] in ("super", "self"):
            base = base[:-1] if words.pop(0) == "super" else base
        yield (*base, *words)
    else:
        # A child of this module, or another crate.
        yield (*module, *words)


def expanded(path):
    """`a::{b, c::d}` as `a::b` and `a::c::d`."""
    brace = path.find("{")
    if brace < 0:
        return [path.split(" as ")[0]]
    head, inner, depth, parts = path[:brace], path[brace + 1: path.rfind("}")], 0, [""]
    for character in inner:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [head + each for part in parts if part.strip() for each in expanded(part.strip())]


def components(edges):
    """Strongly connected components (Tarjan, 1972), without recursion."""
    index, low, stack, on_stack, found, counter = {}, {}, [], set(), [], 0
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = counter = counter + 1
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = counter = counter + 1
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = set()
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    found.append(component)
    return found


def figures():
    sources = {crate: Source(crate) for crate in PRODUCT + LABORATORY + FOR_TESTS_ONLY}
    found = {"lines": {}, "types": {}, "files": {}, "functions": {}, "circles": {}, "paths": {}}
    for group, crates in [("product", PRODUCT), ("laboratory", LABORATORY)]:
        found["lines"][group] = sum(sources[crate].lines_of_code() for crate in crates)
    for crate, source in sources.items():
        for name, count in source.methods().items():
            if count > MAX_METHODS:
                found["types"][f"{crate} {name}"] = count
        for file, count in source.lines_of_files.items():
            if count > MAX_FILE_LINES:
                found["files"][str(file.relative_to(ROOT))] = count
        for name, count in source.functions():
            if count > MAX_FUNCTION_LINES:
                found["functions"][name] = count
        for path in source.paths_outside():
            found["paths"][path] = found["paths"].get(path, 0) + 1
        sizes = sorted((len(circle) for circle in source.circles() if len(circle) > MAX_CIRCLE), reverse=True)
        for number, size in enumerate(sizes, 1):
            found["circles"][f"{crate} {number}"] = size
    return found, sources


def differences(found, known):
    for kind, values in found.items():
        before = known.get(kind, {})
        for name in sorted(values.keys() | before.keys()):
            now, then = values.get(name, 0), before.get(name, 0)
            if kind == "lines" and now <= then:
                continue
            if now > then:
                yield f"{kind}: {name} has {now}, at most {then or 'the limit'} is allowed"
            elif now < then:
                yield f"{kind}: {name} has {now} instead of {then}: checks/structure.py --update keeps that"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="show all figures")
    parser.add_argument("--update", action="store_true", help="write checks/structure.json")
    options = parser.parse_args()
    found, sources = figures()
    if options.list:
        for crate, source in sources.items():
            print(f"{crate}: {source.lines_of_code()} lines of code")
        print(json.dumps(found, indent=1, sort_keys=True))
        return 0
    if options.update:
        KNOWN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return 0
    known = json.loads(KNOWN.read_text())
    problems = list(differences(found, known))
    print("\n".join(problems) or "structure: as in checks/structure.json")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
