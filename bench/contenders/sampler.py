"""Our program with a sampling profiler: it records the stack every few milliseconds of CPU time.

Run with `python -m` in place of `gpu_scheduler`; the variable SAMPLES names the output file. SIGUSR1 discards earlier
samples. A stack is the functions from the outermost on, as `module:function;module:function`.
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
_LIBRARY_FOLDERS: Final = ("gpu_scheduler", "contenders", "site-packages", Path(os.__file__).parent.name)
"""Folders that contain packages."""
_EVERY: Final = 0.002
"""Seconds; a kernel whose clock ticks less often sends a signal at each tick."""


class Sampler:
    """Counts stacks."""

    def __init__(self) -> None:
        """Start to sample. Must run in the main thread, because only that one receives signals."""
        self._seen: Counter[tuple[CodeType, ...]] = Counter()
        signal.signal(signal.SIGPROF, self._take)
        signal.signal(signal.SIGUSR1, self._forget)
        signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)

    def end(self) -> dict[str, int]:
        """Stop; return how often each stack was seen."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        reported: Counter[str] = Counter()
        for stack, times in self._seen.items():
            reported[";".join(map(_function_name, stack))] += times
        return reported

    def _take(self, _: int, frame: FrameType | None) -> None:
        stack: list[CodeType] = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._seen[tuple(reversed(stack))] += 1

    def _forget(self, *_: object) -> None:
        self._seen.clear()


def _function_name(code: CodeType) -> str:
    """Return module and function as `module:function`; code compiled from a string has no module."""
    parts = Path(code.co_filename).with_suffix("").parts
    library_folders = [place for place, part in enumerate(parts) if part in _LIBRARY_FOLDERS]
    module = ".".join(parts[library_folders[-1] + 1 :]) if library_folders else ""
    return f"{module}:{code.co_qualname}" if module else code.co_qualname


if __name__ == "__main__":
    sampler = Sampler()
    try:
        main()
    finally:
        Path(os.environ[PATH]).write_bytes(msgspec.json.encode(sampler.end()))
