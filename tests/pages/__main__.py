"""Writes all parts of the pages that are made: `python -m tests.pages`, which `make fmt` runs."""

from __future__ import annotations

from tests.pages.all_pages import all_pages

if __name__ == "__main__":
    for page in all_pages():
        page.path.write_text(page.written(page.path.read_text(encoding="utf-8")), encoding="utf-8")
