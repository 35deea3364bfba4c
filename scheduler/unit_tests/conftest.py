"""Choose the event loop of each test: one with the machine's clock, or one with virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from unit_tests.virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return a VirtualLoop for tests marked clock("virtual"): a busy machine does not change their seconds."""
    marker = item.get_closest_marker("clock")
    if marker is not None and marker.args == ("virtual",):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}
