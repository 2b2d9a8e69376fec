# SPDX-License-Identifier: Apache-2.0
"""The documentation site: `make docs` builds it in target/docs-site.

The source folder is the repository, so that a relative link means the same here and on GitHub.
"""

project = "Tautline"
copyright = "the Tautline authors"
html_title = "Tautline"
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["style"]
html_css_files = ["tables.css"]

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "spec/*.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = ["target", "crates", "fuzz", "scenarios", "packaging", ".git"]

nitpicky = True
myst_heading_anchors = 4
