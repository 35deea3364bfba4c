"""The raw results: one file per session, with a record for each repetition of a cell.

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
"""The raw results of sessions; git ignores them."""


class Cell(msgspec.Struct, frozen=True, order=True):
    """What is measured. `variant` distinguishes runs of one contender, for example by client and requests in flight."""

    workload: str
    contender: str
    variant: str = ""
    nodes: int = 0
    pods: int = 0


class Cost(msgspec.Struct, frozen=True):
    """The costs of a process: CPU while the cell was measured, memory at the end."""

    cpu: float
    rss: float
    pss: float


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """The costs at one cluster size, in CPU and memory of one process; a decision includes the ledger's update."""

    first: float
    """Milliseconds for the first decision by strategy of an equivalence class, which may check every node."""
    pinned: float
    """Microseconds for a decision whose map line is known; `strategy` and `line` are in microseconds too."""
    strategy: float
    line: float
    """For a pod that takes any free line of a long map."""
    event: float
    """Microseconds to apply a watch event of one of our pods: decoding, translation and the ledger's update."""
    collection: float
    """Milliseconds for one full run of the garbage collector, which no decision above includes."""
    pod_memory: float | None = None
    """Bytes that each pod adds; None if there are too few pods to measure it."""
    node_memory: float | None = None
    """Bytes that each node adds, with its slice if there are claims; None if there are too few nodes to measure it."""
    claim_memory: float | None = None
    """Bytes that each allocated ResourceClaim adds; None without claims."""


class Measured(msgspec.Struct, kw_only=True):
    """One repetition of a cell, as the observer measured it."""

    cell: Cell
    repetition: int
    began: str
    """Wall clock, ISO 8601 in UTC."""
    to_last_bind: float = 0.0
    """From the first observed bind to the last; with ResourceClaims, from the first change of a claim."""
    to_last_event: float | None = None
    """From the first observed bind to the last `Scheduled` event; None if the contender writes no events."""
    bound: int = 0
    events: int = 0
    devices: int = 0
    """Distinct pairs of node and device that were assigned; 0 if the contender assigns none."""
    each_tenth: list[int] = []
    """Binds in each tenth of a second since the first observed bind."""
    latencies: list[float] = []
    """From the answer to a pod's creation to its bind, for arrivals only."""
    event_delays: list[float] = []
    """From a pod's bind to its event, for arrivals only."""
    resident: list[tuple[float, float]] = []
    """Seconds since the beginning, and MiB resident at that time, after a warm-up; for churn only."""
    first_bind: float | None = None
    """From the process's start to the first observed bind, for a cold start only."""
    gap: float | None = None
    """The longest time between two consecutive binds, for a failover only."""
    appeared: list[float] = []
    """From the answer to a pod's creation to its first watch event at the observer; beside a tenant only."""
    queued: float | None = None
    """The mean time from the scheduler's first sight of a pod to its last attempt; beside a tenant only."""
    memory_share: float | None = None
    """The most memory that was resident at a time, in percent of the memory limit of its role; beside a tenant only."""
    window: float | None = None
    """How long the contender was idle and its costs were counted; for idle cells only."""
    answered: int = 0
    """Requests of a client with the expected answer, if the cell measures answers."""
    to_last_answer: float | None = None
    """From the client's beginning to the last of these answers; None if there is no such client."""
    creations: list[float] = []
    """From a request to create a pod to its answer, for pods that are created at a steady rate."""
    calls: dict[str, int] = {}
    """The API server's own count of requests during the measurement, as `POST pods/binding`."""
    costs: dict[str, Cost] = {}
    """By process: the contender's name, kube-apiserver, etcd, and `client` if a client sets the rate."""
    growth: Growth | None = None
    """The costs, for growth only (which binds nothing)."""
    part: str = ""
    """The part of the plan to which the cell belongs."""
    wrong: list[str] = []
    """The faults of this repetition. A repetition with faults takes no part in any ratio."""


class Machine(msgspec.Struct, frozen=True):
    """The machine that measured."""

    processor: str
    cores: int
    memory: int
    """MiB."""
    kernel: str


class Again(msgspec.Struct, frozen=True):
    """A part of a plan that was measured again later, and replaces the earlier results."""

    part: str
    began: str
    commit: str
    machine: Machine | None = None
    """None if it is the session's machine."""


class Session(msgspec.Struct, kw_only=True):
    """One run of the benchmark."""

    name: str
    """`quick`, `standard`, `claims`, `neighbours` or `full`."""
    began: str
    commit: str
    """With `-dirty` if the working tree had changes."""
    versions: dict[str, str]
    machine: Machine
    measured: list[Measured]
    again: list[Again] = []
    """Parts that were measured at another time than `began`, and maybe at another commit."""


def now() -> str:
    """Return the current time as records store it: ISO 8601, UTC, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write(session: Session, path: Path) -> None:
    """Write the session atomically."""
    replace_file(path, msgspec.json.encode(session) + b"\n")


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file's content atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def read(path: Path) -> Session:
    """Read a session; ValidationError when the file is not one."""
    return msgspec.json.decode(path.read_bytes(), type=Session)
