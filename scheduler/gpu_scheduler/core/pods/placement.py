"""Node, devices and index of a pod: decided, written by a Binding, and read back."""

import re
import sys
from collections.abc import Mapping
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.placement_map import device_kind
from gpu_scheduler.core.pods.visible_devices import devices_in

_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
"""A time as our Bindings write it. Times of this one format sort as text."""


@immutable
class Placement:
    """The node, the devices and the index that a pod gets.

    `node` is a real name. `devices` are in the order in which CUDA must number them. `index` is that of the map line,
    or None if a strategy chose.
    """

    node: str
    devices: tuple[str, ...]
    index: int | None
    uuids: tuple[str, ...] | None = None
    """The UUIDs of the devices, in their order; None if they are not all known."""
    together: str = ""
    """The digest of the map whose other lines are kept from now on; empty if the pods do not start together."""

    @property
    def value(self) -> str:
        """Return the devices in the format of CUDA_VISIBLE_DEVICES; empty means no GPU."""
        return ",".join(self.devices)

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations of the Binding: it stores node, devices and index in one write.

        The ledger reads them back.
        """
        known = {} if self.uuids is None else {names.ASSIGNED_UUIDS: ",".join(self.uuids)}
        if self.index is not None:
            known[names.ASSIGNED_INDEX] = str(self.index)
        if self.together:
            known[names.ASSIGNED_TOGETHER] = self.together
        return {names.ASSIGNED_DEVICES: self.value, names.ASSIGNED_NODE: self.node, **known}


@immutable
class Assignment:
    """What the Binding of a pod wrote on it, except the index, which is part of its request."""

    devices: tuple[str, ...] | None = None
    """None if the Binding did not write them, because it was not ours."""
    node: str | None = None
    uuids: tuple[str, ...] = ()
    """What `devices` were then, in their order; empty if that was not known."""
    at: str = ""
    """When the pod was bound (RFC 3339, UTC, microseconds). Empty if the annotation is missing or has another
    format."""
    together: str = ""
    """The digest of the map whose other lines are kept; empty if the pods do not start together."""


UNASSIGNED: Final = Assignment()


def read_assignment(annotations: Mapping[str, str]) -> Assignment:
    """Read back what a Binding wrote, as far as it can be read."""
    devices, node = annotations.get(names.ASSIGNED_DEVICES), annotations.get(names.ASSIGNED_NODE)
    at = annotations.get(names.ASSIGNED_AT, "")
    if devices is None and node is None and not at:
        return UNASSIGNED
    found = None if devices is None else devices_in(devices)
    return Assignment(
        found,
        node,
        _uuids(annotations.get(names.ASSIGNED_UUIDS, ""), found or ()),
        at if _MOMENT.fullmatch(at) else "",
        sys.intern(annotations.get(names.ASSIGNED_TOGETHER, "")),
    )


def _uuids(text: str, devices: tuple[str, ...]) -> tuple[str, ...]:
    """Return one UUID for each device; none if the text has others than these."""
    # Interned: the pods of one GPU share the text.
    found = tuple([sys.intern(each) for each in text.split(",")]) if text else ()
    return found if len(found) == len(devices) and all(device_kind(each) in {"GPU", "MIG"} for each in found) else ()
