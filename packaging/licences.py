#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the licences of everything that is linked into the program: licences.py TARGET_TRIPLE.

Most licences require that their text comes with each copy.
"""

import json
import pathlib
import re
import subprocess
import sys

NAMES = re.compile(r"^(licen[cs]e|copying|notice)", re.IGNORECASE)
# C code that crates carry along.
EMBEDDED = {
    "cyclors": ["cyclonedds/LICENSE", "cyclonedds/NOTICE.md"],
    "zstd-sys": ["zstd/LICENSE"],
    "ring": ["third_party/fiat/LICENSE"],
}
RULE = "-" * 78


def cargo(*arguments):
    command = ["cargo", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked_packages(triple):
    """Returns the packages of the program by name and version, without packages that only build it."""
    tree = cargo("tree", "--locked", "-p", "tautline-cli", "--target", triple, "--edges", "normal,no-proc-macro",
                 "--prefix", "none", "--format", "{p}")
    wanted = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    found = {(p["name"], "v" + p["version"]): p for p in metadata["packages"]}
    return [found[key] for key in sorted(wanted) if found[key]["source"]]


def texts_of(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and NAMES.match(path.name))
    files += [folder / name for name in EMBEDDED.get(package["name"], [])]
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def main():
    packages = linked_packages(sys.argv[1])
    print("Tautline is licensed under the Apache License 2.0. The program contains these other works.\n")
    users = {}
    for package in packages:
        licence = package["license"] or "see its text"
        print(f"{package['name']} {package['version']}: {licence}")
        for text in texts_of(package):
            users.setdefault(text, []).append(package["name"])
    print("\nThe standard library of Rust: MIT OR Apache-2.0 (https://www.rust-lang.org/policies/licenses)")
    for text, names in users.items():
        print(f"\n{RULE}\n{', '.join(sorted(set(names)))}\n{RULE}\n{text}")


if __name__ == "__main__":
    main()
