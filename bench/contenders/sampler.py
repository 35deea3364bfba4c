"""Our own program, which tells at its end where its processor time went: the stack, every few milliseconds of it.

Run with `python -m` in the place of `gpu_scheduler`; the variable SAMPLES names the file that is written. SIGUSR1 makes
it forget what it has seen. A stack is its functions from the outermost on, as `module:function;module:function`.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler.cli.main import main

if TYPE_CHECKING:
    from types import CodeType, FrameType

MODULE: Final = "bench.contenders.sampler"
PATH: Final = "SAMPLES"
_HOMES: Final = ("gpu_scheduler", "contenders", "site-packages", Path(os.__file__).parent.name)
"""Folders in which packages lie."""
_EVERY: Final = 0.002
"""Seconds; a kernel whose clock ticks less often sends a signal at each tick."""


class Sampler:
    """Counts stacks."""

    def __init__(self) -> None:
        """Begin at once; in the main thread, as signals arrive nowhere else."""
        self._seen: Counter[tuple[CodeType, ...]] = Counter()
        signal.signal(signal.SIGPROF, self._take)
        signal.signal(signal.SIGUSR1, self._forget)
        signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)

    def end(self) -> dict[str, int]:
        """Take no more; how often each stack was seen."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        told: Counter[str] = Counter()
        for stack, times in self._seen.items():
            told[";".join(map(_told, stack))] += times
        return told

    def _take(self, _: int, frame: FrameType | None) -> None:
        stack: list[CodeType] = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._seen[tuple(reversed(stack))] += 1

    def _forget(self, *_: object) -> None:
        self._seen.clear()


def _told(code: CodeType) -> str:
    """The module from its package on, and the function; what was made of a text has no module."""
    parts = Path(code.co_filename).with_suffix("").parts
    homes = [place for place, part in enumerate(parts) if part in _HOMES]
    module = ".".join(parts[homes[-1] + 1 :]) if homes else ""
    return f"{module}:{code.co_qualname}" if module else code.co_qualname


if __name__ == "__main__":
    sampler = Sampler()
    try:
        main()
    finally:
        Path(os.environ[PATH]).write_bytes(msgspec.json.encode(sampler.end()))
