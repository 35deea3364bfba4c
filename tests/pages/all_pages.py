"""All pages with parts that are made."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from tests.pages import chart_values, claims, kinds, metrics, reasons, role_inputs, settings, verbs

if TYPE_CHECKING:
    from tests.pages.parts import Page


def all_pages() -> tuple[Page, ...]:
    """Return them, the roles' READMEs included."""
    made = (chart_values, claims, kinds, metrics, reasons, role_inputs, settings, verbs)
    return tuple(chain.from_iterable(each.pages() for each in made))
