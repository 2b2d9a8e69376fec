# SPDX-License-Identifier: Apache-2.0
"""The generated parts of pages. Each module has `PARTS`: the page and the function of each part."""
