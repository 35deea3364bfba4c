"""Control planes that begin with the same objects: created once, then etcd's folder is copied for each cell.

To create 5,000 pods takes longer than to place them.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.cluster import DATA, start_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from bench.cluster import ClusterUnderTest

_KEPT: Final = 4
"""Snapshots that are kept at a time, about 100 MB each."""

_snapshots: dict[Hashable, tempfile.TemporaryDirectory[str]] = {}


@contextmanager
def from_snapshot(
    what: Hashable, make: Callable[[ClusterUnderTest], None], isolation: str = "env"
) -> Iterator[ClusterUnderTest]:
    """Start a control plane with the objects of `make`. Later calls with the same `what` get a copy of its data."""
    if what not in _snapshots:
        while len(_snapshots) >= _KEPT:
            _snapshots.pop(next(iter(_snapshots))).cleanup()
        _snapshots[what] = _made(make, isolation)
    with start_cluster(data=Path(_snapshots[what].name) / DATA, isolation=isolation) as cluster:
        yield cluster


def _made(make: Callable[[ClusterUnderTest], None], isolation: str) -> tempfile.TemporaryDirectory[str]:
    snapshot = tempfile.TemporaryDirectory(prefix="bench-stock-")
    with start_cluster(isolation=isolation) as cluster:
        make(cluster)
        cluster.plane.stop()
        shutil.copytree(cluster.folder / DATA, Path(snapshot.name) / DATA)
    return snapshot
