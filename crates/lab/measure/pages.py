# SPDX-License-Identifier: Apache-2.0
"""Fills the generated parts of pages from the reports.

A part is between `<!-- begin NAME -->` and `<!-- end NAME -->`: on lines of their own around a table or a
paragraph, or within a sentence around a few words. Commands of the laboratory fill other parts of the same
form themselves.
"""

import os
import pathlib
import re

from data import NoReport, Store
from parts import attack, links, overview, programs, rate_control, slow_link

PARTS = {
    name: part
    for module in (overview, slow_link, links, programs, rate_control, attack)
    for name, part in module.PARTS.items()
}
PLACE = re.compile(r"<!-- begin ([\w -]+?) -->(.*?)<!-- end \1 -->", re.DOTALL)


def link(store, name, page):
    """A link to a report from a page, whichever form the report has."""
    file = store.file_of(name)
    if file is None:
        raise NoReport(f"there is no report '{name}' in {store.folder}")
    target = os.path.relpath(pathlib.PurePath("docs/measured") / file.name, pathlib.PurePath(page).parent)
    return f"[{file.name}]({target})"


class Links:
    """What a part needs of this module."""

    link = staticmethod(link)


def framed(name, words, is_block):
    if "-->" in words:
        raise ValueError(f"the part '{name}' would end a comment")
    inner = f"\n\n{words}\n\n" if is_block else words
    return f"<!-- begin {name} -->{inner}<!-- end {name} -->"


def places(page_text):
    """The parts of a page: name and content."""
    return {match[1]: match[2] for match in PLACE.finditer(page_text)}


def replaced(page_text, contents):
    """A page with these parts. Each part keeps its form: on separate lines, or within a sentence."""

    def fill(match):
        words = contents.get(match[1])
        return match[0] if words is None else framed(match[1], words, match[2].startswith("\n"))

    return PLACE.sub(fill, page_text)


def filled(root):
    """The pages with their parts as the reports say, and the parts whose reports are missing."""
    store = Store(pathlib.Path(root) / "docs")
    by_page, missing = {}, []
    for name, (page, part) in PARTS.items():
        try:
            words = part(store, Links)
        except NoReport as reason:
            missing.append((name, reason))
            words = None
        except (KeyError, IndexError, TypeError, StopIteration) as error:
            raise ValueError(f"the part '{name}' of {page}: a report has another form: {error!r}") from error
        by_page.setdefault(page, {})[name] = words
    pages = {}
    for page, contents in by_page.items():
        file = pathlib.Path(root) / page
        page_text = file.read_text()
        absent = set(contents) - set(places(page_text))
        if absent:
            name = min(absent)
            raise ValueError(f"{page} has no place for '{name}': <!-- begin {name} -->...<!-- end {name} -->")
        pages[file] = (page_text, replaced(page_text, contents))
    return pages, missing


def update(root):
    """Fills all parts; returns the changed files and the missing reports."""
    pages, missing = filled(root)
    changed = []
    for file, (before, after) in pages.items():
        if before != after:
            file.write_text(after)
            changed.append(file)
    return changed, missing


def differences(root):
    """The parts that differ from the reports."""
    for file, (before, after) in filled(root)[0].items():
        expected = places(after)
        for name, words in places(before).items():
            if words != expected[name]:
                yield file, name, words.strip(), expected[name].strip()
