"""What users write on a pod, shortened to what is kept: annotations, labels, owner, variables, condition.

If a part is shortened because it is too large, the pod gets an Excess that names the part. Such a pod is never placed.
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
from gpu_scheduler.kube.objects.pod_objects import ContainerObject, Env, OwnerReference, PodMeta, PodSpec
from gpu_scheduler.kube.objects.resource_claims import container_claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_scheduler.kube.objects.meta import ConditionObject

_owners = msgspec.json.Decoder(list[OwnerReference] | None)
_envs = msgspec.json.Decoder(list[Env])
_ABSENT: Final = frozenset({b"", b"null"})
_CUDA: Final = frozenset({names.VISIBLE_DEVICES, names.DEVICE_ORDER})
_MAYBE_CUDA: Final = re.compile(rb"CUDA_|\\u")
"""Matches every text that has one of the two variables, also with JSON escapes."""
_KINDS: Final = (ContainerKind.CONTAINER, ContainerKind.INIT, ContainerKind.EPHEMERAL)
"""The kinds in the order in which `environment_in` reads a pod's lists of containers."""
_LONGEST: Final = 1024
"""Most characters of a text for which the result is cached."""
_MOST: Final = 1024
"""Most cached results of one function."""
_MAX_ANNOTATIONS: Final = {
    names.MAP: MAX_BYTES,
    names.ASSIGNED_DEVICES: MAX_PART,
    names.ASSIGNED_UUIDS: MAX_PART,
    names.ASSIGNED_NODE: 253,
}
"""Most bytes of the annotations that may be longer than MAX_ANNOTATION."""
_LONG_VALUE: Final = re.compile(
    rb'"name"\s*:\s*"(CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER)"\s*,\s*"value"\s*:\s*"([^"]{%d,})' % MAX_VALUE
)
_FEW: Final = 16
"""Most containers of a pod that are all kept, even if some are equal."""
_MAX_NAME: Final = 253
"""Longest name of an object."""
_SCHEDULED: Final = ScheduledCondition("True", "", "")
"""The condition of nearly all bound pods; its transition time does not matter."""


def kept_annotations(given: Mapping[str, str] | None) -> tuple[dict[str, str], Excess | None]:
    """Return the annotations that a decision reads, shortened if too long, and the Excess of the first such one."""
    kept: dict[str, str] = {}
    excess: Excess | None = None
    for key, written in (given or {}).items():
        if key in names.POD_ANNOTATIONS:
            text, too_long = (written, None) if len(written) <= MAX_ANNOTATION else _shortened(key, written)
            excess = excess or too_long
            # Only the node's name is common to many pods, so only it is interned.
            kept[key] = sys.intern(text) if key == names.ASSIGNED_NODE else text
    return kept, excess


def labels_of(meta: PodMeta) -> Mapping[str, str]:
    """Return the labels that a decision reads."""
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
    """Return the pod's owners; if their text is too long, none and an Excess."""
    data = bytes(meta.owner_references)
    if len(data) > MAX_PART:
        return [], Excess("metadata.ownerReferences", len(data), MAX_PART)
    return decode_object(_owners, data or b"null") or [], None


def controller_of(meta: PodMeta) -> tuple[Owner | None, Excess | None]:
    """Return the owner that is the pod's controller, or None, and an Excess if the owners' text is too long."""
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
    if owner is None:
        return None
    fields = (owner.kind, owner.name, owner.uid, owner.api_version)
    return _same_owner(*(each[:_MAX_NAME] for each in fields))


def environment_in(spec: PodSpec, *, all_of_them: bool, isolated: bool) -> tuple[Environment, Excess | None]:
    """Return the CUDA variables of the pod's containers and, if `isolated`, the ResourceClaims that they use.

    If there are many containers and `all_of_them` is False, keep only the first of several equal ones.
    """
    lists = (spec.containers or (), spec.init_containers or (), spec.ephemeral_containers or ())
    count = sum(map(len, lists))
    if count > MAX_CONTAINERS:
        return NO_CONTAINERS, Excess("the pod", count, MAX_CONTAINERS, "containers")
    claims_text = _resources_text if isolated else _not_read
    texts = tuple([tuple([(each.name, _env_text(each.env), claims_text(each)) for each in group]) for group in lists])
    if count <= _FEW:
        length = sum([len(name) + len(env) + len(resources or b"") for name, env, resources in chain(*texts)])
        return _environment(texts) if length <= _LONGEST else _environment.__wrapped__(texts)
    found, excess = _environment.__wrapped__(texts)
    if all_of_them:
        return found, excess
    alike = {(each.kind is ContainerKind.EPHEMERAL, each.env, each.claims): each for each in reversed(found.containers)}
    return replace(found, containers=tuple(reversed(alike.values()))), excess


def _env_text(env: msgspec.Raw) -> bytes | memoryview:
    """Return a copy that may be cached, or a view if the text is too long for that."""
    text = memoryview(env)
    return bytes(text) if len(text) <= MAX_ENV else text


def _resources_text(container: ContainerObject) -> bytes | memoryview | None:
    text = memoryview(container.resources)
    return bytes(text) if len(text) <= MAX_PART else text


def _not_read(_: ContainerObject) -> bytes | memoryview | None:
    return None


@lru_cache(maxsize=_MOST)
def _environment(
    texts: Iterable[Iterable[tuple[str, bytes | memoryview, bytes | memoryview | None]]],
) -> tuple[Environment, Excess | None]:
    read = _Variables()
    found = tuple(
        Container(kind, position, name, read.env_of(env), None if resources is None else container_claims(resources))
        for kind, containers in zip(_KINDS, texts, strict=True)
        for position, (name, env, resources) in enumerate(containers)
    )
    if read.entries <= MAX_ENTRIES:
        return environment_of(found), read.excess
    return NO_CONTAINERS, Excess(
        "the pod", read.entries, MAX_ENTRIES, f"entries of {names.VISIBLE_DEVICES} and {names.DEVICE_ORDER}"
    )


def condition_of(conditions: Iterable[ConditionObject]) -> ScheduledCondition | None:
    """Return the condition PodScheduled, or None."""
    for condition in conditions:
        if condition.type == names.CONDITION_POD_SCHEDULED:
            if condition.status == "True" and not condition.reason and not condition.message:
                return _SCHEDULED
            message = (condition.message or "")[:MAX_MESSAGE]
            reason = (condition.reason or "")[:MAX_MESSAGE]
            return ScheduledCondition(condition.status, reason, message, condition.last_transition_time)
    return None


class _Variables:
    """Reads the two CUDA variables of a pod's containers, and limits how much of their values is kept."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._room = MAX_VALUES
        self.excess: Excess | None = None
        self.entries = 0

    def env_of(self, data: bytes | memoryview) -> tuple[EnvVar, ...] | None:
        """Return the variables of one container. None means no `env`, so that a patch must create the list."""
        if len(data) > MAX_ENV:
            self._note_long(data)
            return ()
        if data in _ABSENT:
            return None
        kept = tuple(self._kept(entry) for entry in decode_object(_envs, bytes(data)) if entry.name in _CUDA)
        self.entries += len(kept)
        return kept

    def _note_long(self, data: bytes | memoryview) -> None:
        """Record the Excess of an `env` that is too long to be decoded, unless neither variable can be in it.

        If a single value is too long, the Excess names its variable.
        """
        if _MAYBE_CUDA.search(data) is None:
            return
        value = _LONG_VALUE.search(data)
        if value is None:
            self.excess = self.excess or Excess("env of a container", len(data), MAX_ENV)
        else:
            self.excess = self.excess or Excess(value[1].decode(), value.end(2) - value.start(2), MAX_VALUE)

    def _kept(self, entry: Env) -> EnvVar:
        """Return one entry as it is kept. Without value and source, its value in the container is ""."""
        if entry.value_from is None:
            value = self._text(entry.name, entry.value or "")
            return (_same_variable if len(value) <= MAX_ANNOTATION else EnvVar)(entry.name, value)
        reference = entry.value_from.field_ref
        path = reference.field_path if reference else None
        return EnvVar(entry.name, None, path and self._text(entry.name, path))

    def _text(self, name: str, text: str) -> str:
        """Return a value as it is kept. Cut it at a comma: half a name could be the name of another device."""
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
    """Return a long annotation as it is kept, and its Excess if it is too long."""
    most = _MAX_ANNOTATIONS.get(key, MAX_ANNOTATION)
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size <= most:
        return _plain(text), None
    # Half a map may be a different valid map; an empty text is no map.
    return "" if key == names.MAP else _plain(text[:MAX_ANNOTATION]), Excess(f"annotation {key}", size, most)


def _plain(text: str) -> str:
    """Replace each character beyond ASCII by `?`.

    One such character can make every character of the text take four bytes. It is valid only in a comment, where it has
    no meaning.
    """
    if text.isascii():
        return text
    return text.encode("ascii", errors="replace").decode()


_same_owner = lru_cache(maxsize=4096)(Owner)
# Most pods have one of few values, and all have the same CUDA_DEVICE_ORDER.
_same_variable = lru_cache(maxsize=_MOST)(EnvVar)
