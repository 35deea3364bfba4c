"""I10: bounds the scheduler's requests, seen by the fault proxy, and its memory, files and threads, from /proc."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.auditor.findings import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.auditor.findings import Allowed
    from tests.integration.faults.proxy import Seen

POD: Final = re.compile(r"/namespaces/([^/?]+)/pods/([^/?]+)")
PAUSE: Final = 0.25


def hot(seen: Iterable[Seen], since: float, allowed: Allowed) -> Iterator[Violation]:
    """I10: too many requests of one kind in a second, or about one pod in a minute."""
    kinds: dict[str, list[float]] = defaultdict(list)
    pods: dict[str, list[float]] = defaultdict(list)
    for each in seen:
        # Other programs use the same proxy: count the scheduler's requests only.
        if each.at < since or not each.agent.startswith("gpu-scheduler/"):
            continue
        path = each.path.partition("?")[0]
        kinds[f"{each.verb} {path}"].append(each.at)
        pod = POD.search(path)
        if pod is not None:
            pods[f"{pod[1]}/{pod[2]}"].append(each.at)
    for pods_name, times in pods.items():
        most = _most_within(times, 60.0)
        if most > allowed.calls_a_minute:
            yield Violation(
                "I10", f"{most} requests about {pods_name} in a minute, {allowed.calls_a_minute} are allowed"
            )
    for kind, times in kinds.items():
        most = _most_within(times, 1.0)
        if most > allowed.calls_a_second and not _of_many(kind):
            yield Violation("I10", f"{most} times {kind} in a second, {allowed.calls_a_second} are allowed")


def _of_many(kind: str) -> bool:
    """Return whether many pods share the path: each pod has an event of its own."""
    return kind.endswith("/events")


def _most_within(times: list[float], seconds: float) -> int:
    """Return the largest number of times within any period of `seconds`."""
    times = sorted(times)
    first, most = 0, 0
    for last, at in enumerate(times):
        while at - times[first] > seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


@dataclass(slots=True)
class Peak:
    """The peaks of a process; memory in MB."""

    memory: float = 0.0
    files: int = 0
    threads: int = 0


class Usage:
    """Measures processes four times a second, in a thread of its own."""

    def __init__(self) -> None:
        """Start the thread; `follow` adds processes."""
        self.peaks: dict[int, Peak] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="auditor of processes")
        self._thread.start()

    def follow(self, pid: int) -> None:
        """Measure this process too, until it ends."""
        self.peaks[pid] = Peak()
        self._sample(pid)

    def violations(self, allowed: Allowed) -> Iterator[Violation]:
        """I10: a process had too much memory, or too many files or threads, at one time."""
        for pid, peak in self.peaks.items():
            for had, most, what in (
                (peak.memory, allowed.memory, "MB of memory"),
                (peak.files, allowed.files, "open files"),
                (peak.threads, allowed.threads, "threads"),
            ):
                if had > most:
                    yield Violation("I10", f"process {pid} had {had:.0f} {what}, {most:.0f} are allowed")

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            for pid in tuple(self.peaks):
                self._sample(pid)

    def _sample(self, pid: int) -> None:
        peak, process = self.peaks[pid], Path(f"/proc/{pid}")
        try:
            status = (process / "status").read_text(encoding="ascii")
            files = sum(1 for _ in (process / "fd").iterdir())
        except OSError:
            return
        fields = dict(line.partition(":")[::2] for line in status.splitlines())
        # A zombie has no VmRSS.
        peak.memory = max(peak.memory, int(fields.get("VmRSS", "0").split()[0]) / 1024)
        peak.threads = max(peak.threads, int(fields["Threads"]))
        peak.files = max(peak.files, files)
