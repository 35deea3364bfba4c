"""Choose the event loop of each test: one with virtual time, or one with the machine's clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from unit_tests.virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return a VirtualLoop, on which no seconds of a busy machine count; a real one for tests marked clock("real")."""
    marker = item.get_closest_marker("clock")
    if marker is not None and marker.args == ("real",):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualLoop}
