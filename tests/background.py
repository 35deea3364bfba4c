"""Runs work in a thread while a block of a test runs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def running(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` during the block. Its event is set when the block ends, and then the thread is waited for."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
