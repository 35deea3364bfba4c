"""What users write on a pod, cut to what is kept of it: annotations, labels, owner, variables, condition.

Whatever is left out because there is too much of it is named as the pod's excess: such a pod is never placed.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import (
    MAX_ANNOTATION,
    MAX_CONTAINERS,
    MAX_ENTRIES,
    MAX_ENV,
    MAX_MESSAGE,
    MAX_PART,
    MAX_VALUE,
    MAX_VALUES,
    Excess,
)
from gpu_scheduler.core.pods.container_env import NO_CONTAINERS, Container, ContainerKind, Environment, EnvVar
from gpu_scheduler.core.pods.placement_map import MAX_BYTES
from gpu_scheduler.core.pods.pod import ScheduledCondition
from gpu_scheduler.core.pods.visible_devices import environment_of
from gpu_scheduler.core.refs import Owner
from gpu_scheduler.kube.objects.decoding import decode_object
from gpu_scheduler.kube.objects.pod_objects import Env, OwnerReference, PodMeta, PodSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_scheduler.kube.objects.meta import ConditionObject

_owners = msgspec.json.Decoder(list[OwnerReference] | None)
_envs = msgspec.json.Decoder(list[Env])
_ABSENT: Final = frozenset({b"", b"null"})
_CUDA: Final = frozenset({names.VISIBLE_DEVICES, names.DEVICE_ORDER})
_MAYBE_CUDA: Final = re.compile(rb"CUDA_|\\u")
"""It stands in every text that has one of the two variables."""
_KINDS: Final = (ContainerKind.CONTAINER, ContainerKind.INIT, ContainerKind.EPHEMERAL)
"""In the order in which a pod's lists of containers are read."""
_LONGEST: Final = 1024
"""Characters of what is remembered, as it is written."""
_MOST: Final = 1024
"""Different texts of a kind that are remembered."""
_MAX_ANNOTATIONS: Final = {
    names.MAP: MAX_BYTES,
    names.ASSIGNED_DEVICES: MAX_PART,
    names.ASSIGNED_NODE: 253,
}
"""Bytes of those that may be longer than the others."""
_LONG_VALUE: Final = re.compile(
    rb'"name"\s*:\s*"(CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER)"\s*,\s*"value"\s*:\s*"([^"]{%d,})' % MAX_VALUE
)
_FEW: Final = 16
"""Containers that are kept one by one, even if they are alike."""
_MAX_NAME: Final = 253
"""Longest name of an object."""
_SCHEDULED: Final = ScheduledCondition("True", "", "")
"""What nearly all bound pods say; since when they do counts for nothing."""


def kept_annotations(given: Mapping[str, str] | None) -> tuple[dict[str, str], Excess | None]:
    """Those that a decision reads."""
    kept: dict[str, str] = {}
    excess: Excess | None = None
    for key, written in (given or {}).items():
        if key in names.POD_ANNOTATIONS:
            text, too_long = (written, None) if len(written) <= MAX_ANNOTATION else _shortened(key, written)
            excess = excess or too_long
            # Of what is kept of a pod only the node is text that many pods have in common.
            kept[key] = sys.intern(text) if key == names.ASSIGNED_NODE else text
    return kept, excess


def labels_of(meta: PodMeta) -> Mapping[str, str]:
    """The labels that a decision reads."""
    given = meta.labels
    if given is None:
        return {}
    known = (
        (names.POD_INDEX, given.pod_index),
        (names.COMPLETION_INDEX, given.completion_index),
        (names.POD_TEMPLATE_HASH, given.pod_template_hash),
        (names.REPLICA_TYPE, given.replica_type),
    )
    return {key: text for key, text in known if text is not None}


def owners_of(meta: PodMeta) -> tuple[list[OwnerReference], Excess | None]:
    """The pod's owners; none where there are too many of them to be read."""
    data = bytes(meta.owner_references)
    if len(data) > MAX_PART:
        return [], Excess("metadata.ownerReferences", len(data), MAX_PART)
    return decode_object(_owners, data or b"null") or [], None


def controller_of(meta: PodMeta) -> tuple[Owner | None, Excess | None]:
    """The one of them that made the pod."""
    data = bytes(meta.owner_references)
    if data in _ABSENT:
        return None, None
    if len(data) <= _LONGEST:
        return _controller(data), None
    owners, excess = owners_of(meta)
    return _among(owners), excess


@lru_cache(maxsize=_MOST)
def _controller(data: bytes) -> Owner | None:
    return _among(decode_object(_owners, data) or ())


def _among(owners: Iterable[OwnerReference]) -> Owner | None:
    owner = next((owner for owner in owners if owner.controller), None)
    return None if owner is None else _same_owner(owner.kind[:_MAX_NAME], owner.name[:_MAX_NAME])


def environment_in(spec: PodSpec, *, all_of_them: bool) -> tuple[Environment, Excess | None]:
    """What the pod's containers say; of many, unless `all_of_them` are asked for, the first of each that are alike."""
    lists = (spec.containers or (), spec.init_containers or (), spec.ephemeral_containers or ())
    count = sum(map(len, lists))
    if count > MAX_CONTAINERS:
        return NO_CONTAINERS, Excess("the pod", count, MAX_CONTAINERS, "containers")
    texts = tuple(tuple((each.name, _env_text(each.env)) for each in containers) for containers in lists)
    if count <= _FEW:
        length = sum(len(name) + len(env) for name, env in chain(*texts))
        return _environment(texts) if length <= _LONGEST else _environment.__wrapped__(texts)
    found, excess = _environment.__wrapped__(texts)
    if all_of_them:
        return found, excess
    alike = {(each.kind is ContainerKind.EPHEMERAL, each.env): each for each in reversed(found.containers)}
    return replace(found, containers=tuple(reversed(alike.values()))), excess


def _env_text(env: msgspec.Raw) -> bytes | memoryview:
    """A copy that may be kept, where it is not too long for that."""
    text = memoryview(env)
    return bytes(text) if len(text) <= MAX_ENV else text


@lru_cache(maxsize=_MOST)
def _environment(
    texts: Iterable[Iterable[tuple[str, bytes | memoryview]]],
) -> tuple[Environment, Excess | None]:
    read = _Variables()
    found = tuple(
        Container(kind, position, name, read.env_of(env))
        for kind, containers in zip(_KINDS, texts, strict=True)
        for position, (name, env) in enumerate(containers)
    )
    if read.entries <= MAX_ENTRIES:
        return environment_of(found), read.excess
    return NO_CONTAINERS, Excess(
        "the pod", read.entries, MAX_ENTRIES, f"entries of {names.VISIBLE_DEVICES} and {names.DEVICE_ORDER}"
    )


def condition_of(conditions: Iterable[ConditionObject]) -> ScheduledCondition | None:
    """The condition PodScheduled, if there is one."""
    for condition in conditions:
        if condition.type == names.CONDITION_POD_SCHEDULED:
            if condition.status == "True" and not condition.reason and not condition.message:
                return _SCHEDULED
            message = (condition.message or "")[:MAX_MESSAGE]
            reason = (condition.reason or "")[:MAX_MESSAGE]
            return ScheduledCondition(condition.status, reason, message, condition.last_transition_time)
    return None


class _Variables:
    """The two CUDA variables of a pod's containers, as far as their values are kept."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._room = MAX_VALUES
        self.excess: Excess | None = None
        self.entries = 0

    def env_of(self, data: bytes | memoryview) -> tuple[EnvVar, ...] | None:
        """The variables of one container; None stays None, because a patch must then make the list."""
        if len(data) > MAX_ENV:
            self._note_long(data)
            return ()
        if data in _ABSENT:
            return None
        kept = tuple(self._kept(entry) for entry in decode_object(_envs, bytes(data)) if entry.name in _CUDA)
        self.entries += len(kept)
        return kept

    def _note_long(self, data: bytes | memoryview) -> None:
        """Of variables that are not read, unless none is ours; one value that is too long is told by its name."""
        if _MAYBE_CUDA.search(data) is None:
            return
        value = _LONG_VALUE.search(data)
        if value is None:
            self.excess = self.excess or Excess("env of a container", len(data), MAX_ENV)
        else:
            self.excess = self.excess or Excess(value[1].decode(), value.end(2) - value.start(2), MAX_VALUE)

    def _kept(self, entry: Env) -> EnvVar:
        """An entry without a value and without a source has the value "" for the container."""
        if entry.value_from is None:
            return EnvVar(entry.name, self._text(entry.name, entry.value or ""))
        reference = entry.value_from.field_ref
        path = reference.field_path if reference else None
        return EnvVar(entry.name, None, path and self._text(entry.name, path))

    def _text(self, name: str, text: str) -> str:
        """A value whose end is missing must not name a device that it did not name."""
        if len(text) > MAX_VALUE:
            self.excess = self.excess or Excess(name, len(text.encode(errors="replace")), MAX_VALUE)
            text = text[:MAX_VALUE].rpartition(",")[0]
        text = _plain(text)
        if text not in self._values:
            self._values.add(text)
            self._room -= len(text)
        if self._room < 0:
            self.excess = self.excess or Excess(f"all values of {name}", MAX_VALUES - self._room, MAX_VALUES)
            return ""
        return text


def _shortened(key: str, text: str) -> tuple[str, Excess | None]:
    """A long annotation as it is kept."""
    most = _MAX_ANNOTATIONS.get(key, MAX_ANNOTATION)
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size <= most:
        return _plain(text), None
    # Half a map may be another map; an empty one is none.
    return "" if key == names.MAP else _plain(text[:MAX_ANNOTATION]), Excess(f"annotation {key}", size, most)


def _plain(text: str) -> str:
    """One character beyond ASCII makes each take four bytes; where one may stand, in a comment, it says nothing."""
    if text.isascii():
        return text
    return text.encode("ascii", errors="replace").decode()


_same_owner = lru_cache(maxsize=4096)(Owner)
