"""The parts of pages that are made from code and data are up to date and complete."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.cli.main import app
from gpu_scheduler.settings import CommonSettings
from tests.contracts.roles import ROOT
from tests.pages.all_pages import all_pages
from tests.pages.settings import CLASSES, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES: Final = {page.path.relative_to(ROOT).as_posix(): page for page in all_pages()}
LINK: Final = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("name", PAGES)
def test_the_page_has_its_parts_as_they_are(name: str) -> None:
    """`make fmt` writes them."""
    text = PAGES[name].path.read_text(encoding="utf-8")

    assert PAGES[name].written(text) == text


def test_each_class_of_settings_has_its_table() -> None:
    """A program's own settings, and those of all classes above."""
    assert set(CLASSES.values()) == {CommonSettings, *_below(CommonSettings)}


@pytest.mark.parametrize("title", CLASSES)
def test_each_setting_is_described(title: str) -> None:
    """Each has a type, a default, a rule, a meaning and an example."""
    for row in rows(CLASSES[title]):
        assert all(row), row


def test_each_verb_has_its_place() -> None:
    """In the list of verbs, and with its options."""
    listed = re.findall(r"^\| \[`([\w-]+)`\]", (ROOT / "docs/cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    headings = re.findall(r"^### ([\w-]+)$", (ROOT / "docs/verbs.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert listed == headings
    assert set(listed) == set(app.commands)


def test_each_field_of_the_kinds_and_each_value_of_the_charts_has_a_meaning() -> None:
    """The last cell of no row is empty."""
    for name in ("docs/crds.md", "docs/chart-values.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r"^.*\|\s*\|$", text, re.MULTILINE) == []


def test_each_page_can_be_reached_from_the_readme() -> None:
    """By links from page to page."""
    reached = set(_reachable(ROOT / "README.md"))

    assert [page.name for page in sorted(ROOT.glob("docs/*.md")) if page not in reached] == []


def _reachable(start: Path) -> Iterator[Path]:
    seen, found = set(), [start]
    while found:
        page = found.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        yield page
        found += [(page.parent / path).resolve() for path in LINK.findall(page.read_text(encoding="utf-8"))]


def _below(kind: type[CommonSettings]) -> Iterator[type[CommonSettings]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
