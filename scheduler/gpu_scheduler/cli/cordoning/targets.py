"""What cordon, uncordon and drain are about: a node, or devices of it.

LAW: pure. A value that cannot be read is refused with one sentence.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gpu_scheduler.cli.options import RefusedInputError, duration_in
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.cordons import ALL_DEVICES
from gpu_scheduler.core.pods.placement_map import NUMBER, device_kind
from gpu_scheduler.core.text import quote
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.core.nodes.cordons import Cordon
    from gpu_scheduler.core.nodes.inventory import Inventory
    from gpu_scheduler.core.nodes.nodes import Node

_EXAMPLE: Final = "example: gpu-scheduler {} node1:0"
_NODE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_MOST_REASON: Final = 256


@immutable
class Target:
    """A node by name or alias, and devices of it as a map names them. Without devices, all of them are meant."""

    node: str
    devices: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"{self.node}:{','.join(self.devices)}" if self.devices else self.node


def read_target(text: str, verb: str) -> Target:
    """Read NODE, NODE:DEVICE or NODE:DEVICE,DEVICE. RefusedInputError if it is none of them."""
    node, colon, devices = text.partition(":")
    given = tuple(dict.fromkeys(devices.split(","))) if colon else ()
    if not _NODE.fullmatch(node) or (colon and not all(map(device_kind, given))):
        raise RefusedInputError(
            f"cannot {verb} {quote(text)}: it must be NODE, NODE:DEVICE or NODE:DEVICE,DEVICE with indices or UUIDs "
            f"({_EXAMPLE.format(verb)})"
        )
    return Target(node, given)


def read_reason(text: str) -> str:
    """Check a reason. RefusedInputError if it is empty or too long."""
    if not text.strip() or len(text) > _MOST_REASON:
        raise RefusedInputError(
            f"cannot use --reason {quote(text)}: it must say why, in 1 to {_MOST_REASON} characters "
            '(example: --reason "Xid 79, ticket 4711")'
        )
    return text


def read_until(text: str, now: datetime) -> str:
    """Read a moment or a duration from now; return RFC 3339, empty for an empty text.

    RefusedInputError if it is neither, or is over already.
    """
    if not text:
        return ""
    moment = _moment(text, now)
    if moment is None or moment <= now:
        raise RefusedInputError(
            f"cannot use --until {quote(text)}: it must be a duration from now or a future time with its zone "
            "(examples: --until 8h, --until 2026-12-01T08:00:00Z)"
        )
    return time_of(moment.astimezone(UTC))


def _moment(text: str, now: datetime) -> datetime | None:
    duration = duration_in(text)
    try:
        moment = datetime.fromisoformat(text) if duration is None else now + duration
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else None


def cordons_of(target: Target, node: Node, whole: Cordon) -> tuple[Cordon, ...]:
    """Return a cordon for each device, by UUID where that is known. `whole` is the cordon of all devices.

    RefusedInputError if the node does not have a device.
    """
    named = dict(_identity(device, node, target) for device in target.devices)
    return tuple(replace(whole, device=device, index=index) for device, index in named.items()) or (whole,)


def _identity(device: str, node: Node, target: Target) -> tuple[str, int | None]:
    """Return the name of a device in a cordon, and its index."""
    inventory, numbered = node.inventory, device_kind(device) == NUMBER
    if inventory is None or not (inventory.has_uuids or numbered):
        return device, int(device) if numbered else None
    part = inventory.find(device)
    if part is None:
        raise RefusedInputError(
            f"cannot cordon {quote(str(target))}: {node.name} has no GPU {quote(device)}; its GPUs are "
            f"{inventory} (example: gpu-scheduler nodes {node.name} -o wide)"
        )
    uuid = next((each.uuid for each in inventory.devices if each.index == part.index), None)
    return part.mig_device or uuid or str(part.index), part.index


def split(cordons: Iterable[Cordon], target: Target, inventory: Inventory | None) -> tuple[list[Cordon], list[Cordon]]:
    """Return the cordons that `target` means, and the others.

    A node alone means the cordon of the whole node. A device means the cordons of exactly that device.
    """
    meant: list[Cordon] = []
    others: list[Cordon] = []
    for cordon in cordons:
        whole = cordon.device == ALL_DEVICES
        hit = (
            whole
            if not target.devices
            else not whole and any(cordon.covers(each, inventory) for each in target.devices)
        )
        (meant if hit else others).append(cordon)
    return meant, others
