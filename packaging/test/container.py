# SPDX-License-Identifier: Apache-2.0
"""Follows a Containerfile in a root file system, where no registry of images can be reached.

It knows the instructions that packaging/Containerfile uses, and refuses others.
"""

import re
import shutil

from roots import ensure

WITHOUT_STEPS = {"FROM", "LABEL", "USER", "EXPOSE", "VOLUME", "STOPSIGNAL", "ARG"}


def instructions(path):
    """Returns the instructions of a file, each with its continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines()]


def build(root, path, context):
    """Runs COPY and RUN, and the entry point with --version as the image's user."""
    user, entry = None, None
    for word, rest in instructions(path):
        if word == "COPY":
            pattern, target = rest.split()
            found = sorted(context.glob(pattern.replace("${TARGETARCH}", root.arch)))
            ensure(found, f"{path.name}: nothing matches {pattern}")
            for file in found:
                shutil.copy(file, root.path / target.lstrip("/"))
        elif word == "RUN":
            root.run("sh", "-c", rest)
        elif word == "ENTRYPOINT":
            entry = re.findall(r'"([^"]*)"', rest)
        else:
            ensure(word in WITHOUT_STEPS or word == "CMD", f"{path.name}: {word} is not known to this test")
            user = rest.split(":")[0] if word == "USER" else user
    ensure(entry and user, f"{path.name} has no USER or no ENTRYPOINT")
    said = root.run(*entry, "--version", user=user)
    ensure(said.startswith("tautline "), f"--version printed {said}")
