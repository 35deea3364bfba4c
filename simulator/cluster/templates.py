"""The workloads of a simulated cluster: controllers with maps, pods that ask for a count, and invalid requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.claim_sets import claim_sets
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from simulator.cluster import objects
from simulator.cluster.objects import BY_FIELD, DEVICE_MEMORY, DEVICES, literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from simulator.api_server.store import Object

NODES: Final = ("node1", "node2", "node3", "node4")
SUFFIXES: Final = "bcdfghjklmnpqrstvwxz2456789"
STRATEGIES: Final = ("least_utilized", "best_fit", "priority", "round_robin")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a map."""

    node: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A controller or a set of bare pods; each member is one pod at a time."""

    name: str
    kind: str
    """The owner's kind; empty for bare pods."""
    members: int
    maps: tuple[tuple[Line, ...], ...] = ()
    """The map, and another one that a recreated pod may have."""
    request: tuple[tuple[str, str], ...] = ()
    dynamic: bool = False
    injected: bool = True

    @property
    def may_have_claims(self) -> bool:
        """Whether the webhook gives the pods ResourceClaims; else it refuses them."""
        shared = (len(devices) > len(set(devices)) for devices in map(_named, self.maps))
        return dict(self.request).get(names.EXCLUSIVE) != "false" and not (self.dynamic and any(shared))

    def make(self, member: int, uid: int, variant: int, *, with_claims: bool) -> Object:
        """Build the member's pod; a generated name differs each time."""
        annotations = dict(self.request)
        env, labels, generated = BY_FIELD, {}, None
        name = f"{self.name}-{member}"
        lines = self.maps[variant % len(self.maps)] if self.maps else ()
        claims = self._claims(lines, member, uid) if with_claims else ()
        if self.maps:
            annotations[names.MAP] = map_text(lines)
            if not self.dynamic and not claims and member < len(lines):
                env = literal(",".join(lines[member].devices))
        if self.kind == "ReplicaSet":
            labels[names.POD_TEMPLATE_HASH] = "5d7f"
            generated = f"{self.name}-5d7f-"
            name = generated + _suffix(uid)
        elif self.kind == "StatefulSet":
            labels[names.POD_INDEX] = str(member)
        elif self.kind == "Job":
            labels[names.COMPLETION_INDEX] = str(member)
            generated = f"{self.name}-{member}-"
            name = generated + _suffix(uid)
        elif not self.maps:
            generated = f"{self.name}-"
            name = generated + _suffix(uid)
        owner_name = f"{self.name}-5d7f" if self.kind == "ReplicaSet" else self.name
        return objects.pod(
            name,
            f"uid-{uid}",
            annotations,
            env if self.injected else None,
            labels=labels,
            owner=(self.kind, owner_name) if self.kind else None,
            generate_name=generated,
            claims=claims,
        )

    def _claims(self, lines: tuple[Line, ...], member: int, uid: int) -> tuple[str, ...]:
        """Give the names of the pod's ResourceClaims."""
        if not self.injected or not (lines or self.request):
            return ()
        if self.dynamic or not lines:
            return (f"{names.CLAIM}{uid}",)
        placement_map = parse_placement_map(map_text(lines))
        slot, owner_uid = placement_map.get(member), objects.OWNER_UID if self.kind else ""
        sets = () if slot is None else claim_sets(placement_map, slot, objects.NAMESPACE, owner_uid)
        return tuple(each.name for each in sets)


def _named(lines: tuple[Line, ...]) -> list[tuple[str, str]]:
    return [(line.node, device) for line in lines for device in line.devices]


def map_text(lines: tuple[Line, ...]) -> str:
    """Give the map as a user writes it."""
    return "".join(f"{index}={line.node}:{','.join(line.devices)}\n" for index, line in enumerate(lines))


def templates_of(random: Random, there: int) -> tuple[Template, ...]:
    """Give the templates of one episode, for nodes with `there` devices each."""
    return (
        Template("set", "StatefulSet", 4, _maps(random, there, 4, 2)),
        Template("wide", "StatefulSet", 3, _maps(random, there, 3, 3)),
        Template("pair", "StatefulSet", 4, _shared(random, there)),
        Template("job", "Job", 4, _maps(random, there, 4, 1)),
        Template("solo", "", 3, _maps(random, there, 3, 1)),
        Template("fleet", "ReplicaSet", 4, _maps(random, there, 5, 1), dynamic=True),
        Template("swarm", "ReplicaSet", 3, _maps(random, there, 3, 2), dynamic=True),
        *_together(random, there),
        *(_counted(random, f"count{number}", strategy) for number, strategy in enumerate((*STRATEGIES, *STRATEGIES))),
        Template("share", "Job", 6, request=_asked(1, memory=6000, exclusive="false")),
        _odd(random),
    )


def _maps(random: Random, there: int, lines: int, devices: int) -> tuple[tuple[Line, ...], ...]:
    def one() -> tuple[Line, ...]:
        return tuple(
            Line(random.choice(NODES), tuple(map(str, random.sample(range(there), devices)))) for _ in range(lines)
        )

    return one(), one()


def _together(random: Random, there: int) -> Iterator[Template]:
    """Give workloads whose pods start together; the first two need each other's GPUs, in the opposite order."""
    start = ((names.START, "together"),)
    (lines, _), (others, _) = _maps(random, there, 3, 2), _maps(random, there, 3, 1)
    yield Template("gang", "StatefulSet", 3, (lines,), start)
    yield Template("rival", "Job", 3, (lines[::-1],), start)
    yield Template("band", "ReplicaSet", 3, (others,), start, dynamic=True)


def _shared(random: Random, there: int) -> tuple[tuple[Line, ...], ...]:
    """Give one map, in which two lines name the same device."""
    node, device = random.choice(NODES), random.randrange(there - 1)
    both, more = Line(node, (str(device),)), Line(node, (str(device + 1),))
    return ((both, both, more, Line(node, (str(device), str(device + 1)))),)


def _counted(random: Random, name: str, strategy: str) -> Template:
    memory = random.choice((0, 4000, DEVICE_MEMORY))
    asked = _asked(random.choice((1, 1, 1, 2, 3)), memory=memory)
    priority = (names.PRIORITY, str(random.randrange(5)))
    return Template(name, "", 3, request=(*asked, (names.STRATEGY, strategy), priority))


def _asked(count: int, *, memory: int = 0, exclusive: str = "true") -> tuple[tuple[str, str], ...]:
    return (names.COUNT, str(count)), (names.MEMORY, str(memory)), (names.EXCLUSIVE, exclusive)


def _odd(random: Random) -> Template:
    """Give a template that no scheduler can place."""
    return random.choice(
        (
            Template("odd", "Job", 2, (_line("nowhere", "0"),)),
            Template("odd", "Job", 2, (_line("node1", "0"),), injected=False),
            Template("odd", "Job", 2, (_line("node1", "12"),)),
            Template("odd", "Job", 2, request=_asked(DEVICES + 1)),
            Template("odd", "Job", 2),
        )
    )


def _line(node: str, device: str) -> tuple[Line, ...]:
    return Line(node, (device,)), Line(node, (device,))


def _suffix(number: int) -> str:
    characters = []
    for _ in range(5):
        number, at = divmod(number * 7 + 3, len(SUFFIXES))
        characters.append(SUFFIXES[at])
    return "".join(characters)
