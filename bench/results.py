"""What the benchmark measures: one raw file per session, a record for each repetition of a cell.

A cell is one workload with one contender on a control plane of its own. Times are in seconds, memory in MiB.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = Path(__file__).resolve().parent / "results"
"""Tables, plots and medians, which are committed."""
RAW: Final = FOLDER / "raw"
"""Sessions as they were measured; git ignores them."""


class Cell(msgspec.Struct, frozen=True, order=True):
    """What is measured: `variant` tells runs of one contender apart, such as a client and its requests in flight."""

    workload: str
    contender: str
    variant: str = ""
    nodes: int = 0
    pods: int = 0


class Cost(msgspec.Struct, frozen=True):
    """What a process used up: CPU while the cell was measured, memory at its end."""

    cpu: float
    rss: float
    pss: float


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster's size costs, in CPU and memory of one process; a decision includes its booking."""

    first: float
    """Milliseconds for the first decision by strategy of its kind, which may look at every node."""
    pinned: float
    """Microseconds for a decision whose map line is known; likewise the next two."""
    strategy: float
    line: float
    """For a pod that takes any free line of a long map."""
    event: float
    """Microseconds to take in what a watch tells of a pod of ours: reading, translation and booking."""
    collection: float
    """Milliseconds for one full run of the garbage collector, which no decision above includes."""
    pod_memory: float | None = None
    """Bytes that each pod adds; None where there are too few to tell."""
    node_memory: float | None = None
    """Likewise each node."""


class Measured(msgspec.Struct, kw_only=True):
    """One repetition of a cell, as the neutral observer saw it."""

    cell: Cell
    repetition: int
    began: str
    """Wall clock, ISO 8601 in UTC."""
    to_last_bind: float = 0.0
    """From the first bind that was seen to the last."""
    to_last_event: float | None = None
    """From the first bind that was seen to the last `Scheduled` event; None where the contender writes none."""
    bound: int = 0
    events: int = 0
    devices: int = 0
    """Distinct pairs of node and device given; 0 where the contender gives none."""
    each_tenth: list[int] = []
    """Binds seen in each tenth of a second, from the first one on."""
    latencies: list[float] = []
    """From a pod's creation, once answered, to its bind, for arrivals only."""
    event_delays: list[float] = []
    """From a pod's bind to its event, for arrivals only."""
    resident: list[tuple[float, float]] = []
    """Seconds since it began, and MiB resident then, after a warm-up; for churn only."""
    first_bind: float | None = None
    """From the process' start to the first bind that was seen, for a cold start only."""
    gap: float | None = None
    """The longest time between two binds that were seen one after the other, for a failover only."""
    window: float | None = None
    """For how long the contender had nothing to place, and its costs were counted; for idleness only."""
    answered: int = 0
    """Requests of a client that were answered as they should be, where that is what is measured."""
    to_last_answer: float | None = None
    """From the client's beginning to the last of these answers; None where there is no such client."""
    creations: list[float] = []
    """From a request to create a pod to its answer, for those at a steady pace."""
    calls: dict[str, int] = {}
    """The API server's own count of requests meanwhile, as `POST pods/binding`."""
    costs: dict[str, Cost] = {}
    """By process: the contender's own name, kube-apiserver, etcd, and `client` where it sets the pace."""
    growth: Growth | None = None
    """For growth only, which binds nothing: what it costs."""
    part: str = ""
    """The part of the plan that it belongs to."""
    wrong: list[str] = []
    """What was not as it must be; a cell with anything here takes no part in any ratio."""


class Machine(msgspec.Struct, frozen=True):
    """Where it ran."""

    processor: str
    cores: int
    memory: int
    """MiB."""
    kernel: str


class Again(msgspec.Struct, frozen=True):
    """A part of a plan that was measured at another time than the rest, in place of what was there."""

    part: str
    began: str
    commit: str
    machine: Machine | None = None
    """None where it is the session's."""


class Session(msgspec.Struct, kw_only=True):
    """One run of the benchmark."""

    name: str
    """`quick`, `standard` or `full`."""
    began: str
    commit: str
    """With `-dirty` where the tree had changes."""
    versions: dict[str, str]
    machine: Machine
    measured: list[Measured]
    again: list[Again] = []
    """What of it is of another time than `began`, and maybe of another commit."""


def now() -> str:
    """Give the wall clock as records carry it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write(session: Session, path: Path) -> None:
    """Write it whole or not at all."""
    replace_file(path, msgspec.json.encode(session) + b"\n")


def replace_file(path: Path, content: bytes) -> None:
    """Put a whole file in the place of what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def read(path: Path) -> Session:
    """Read one; ValidationError when it is not such a file."""
    return msgspec.json.decode(path.read_bytes(), type=Session)
