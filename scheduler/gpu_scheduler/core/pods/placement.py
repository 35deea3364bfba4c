"""Where a pod goes and what it sees there: decided, written by a Binding, and read back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.visible_devices import devices_in

_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
"""A time as our Bindings write it: times that are written alike sort like text."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod goes and what it sees there.

    `node` is a real name, `devices` come in the order in which CUDA is to number them, `index` is the map line's; None
    when a strategy chose.
    """

    node: str
    devices: tuple[str, ...]
    index: int | None
    uuids: tuple[str, ...] | None = None
    """Of the devices, in their order, where they are known."""

    @property
    def value(self) -> str:
        """The devices as CUDA_VISIBLE_DEVICES spells them; empty means no GPU."""
        return ",".join(self.devices)

    @property
    def annotations(self) -> dict[str, str]:
        """What the Binding must carry, so that node, devices and index become durable in one write.

        The ledger reads it back.
        """
        known = {} if self.uuids is None else {names.ASSIGNED_UUIDS: ",".join(self.uuids)}
        if self.index is not None:
            known[names.ASSIGNED_INDEX] = str(self.index)
        return {names.ASSIGNED_DEVICES: self.value, names.ASSIGNED_NODE: self.node, **known}


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the Binding of a pod wrote on it, but for the index, which is its request's."""

    devices: tuple[str, ...] | None = None
    """None where it did not write them: it was not ours."""
    node: str | None = None
    at: str = ""
    """When the pod was bound (RFC 3339, UTC, microseconds); empty where that is not written so."""


UNASSIGNED: Final = Assignment()


def read_assignment(annotations: Mapping[str, str]) -> Assignment:
    """Read back what a Binding wrote, as far as it can be read."""
    devices, node = annotations.get(names.ASSIGNED_DEVICES), annotations.get(names.ASSIGNED_NODE)
    at = annotations.get(names.ASSIGNED_AT, "")
    if devices is None and node is None and not at:
        return UNASSIGNED
    return Assignment(
        None if devices is None else devices_in(devices),
        node,
        at if _MOMENT.fullmatch(at) else "",
    )
