"""The clock that measures how long a replica may lead. It also counts the time in which the machine was suspended."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Only Linux has CLOCK_BOOTTIME. Its CLOCK_MONOTONIC stops during a suspend.
_read_boot_time: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


def elapsed_clock(
    monotonic: Callable[[], float] = time.monotonic, boot_time: Callable[[], float] = _read_boot_time
) -> Callable[[], float]:
    """Return a clock of seconds that advances as the faster of both clocks: only the boot time counts a suspend.

    Neither clock counts a pause of a virtual machine whose host hides it from the guest.
    """
    offset = monotonic() - boot_time()
    return lambda: max(monotonic(), boot_time() + offset)


read_elapsed: Final = elapsed_clock()
"""The clock of this process."""
