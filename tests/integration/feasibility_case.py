"""The rows of messages: a cluster, a pod that waits in it, and what each remedy of its message does."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.core.reasons import RankedReason, Reason
from tests import messages, objects
from tests.integration.remedies import Inspection, Remedy
from tests.objects import literal, node, pod, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.mark import ParameterSet

    from tests.integration.command import Command
    from tests.integration.installed import Installed
    from tests.integration.namespace import Namespace
    from tests.objects import Object

LINE: Final = "0=node1:0\n"
OTHER: Final = "0=node1:0\n# another map, so another workload\n7=node7:0\n"

_BETWEEN: Final = (
    ", or ",
    " or ",
    ", ",
    "; ",
    "no waiting helps: ",
    "in a rolling update the old pod must go first: ",
    f" {messages.RECREATE}",
    " ",
)
"""What may stand between two remedies of a message, before the first and after the last."""
REMEDIES: Final = os.environ.get("REMEDIES", "first")
"""Which remedies of a row are carried out, each in a test of its own. Suite sweeps sets REMEDIES to all."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    Its message is the entry of its name in the table of messages, or that of `message_of`. `parts` do what the parts of
    the message say, in their order. `also` are remedies that it does not name. `transient` is in each message that may
    come while the set-up or a remedy takes effect. `beyond` says that the pod asks for more than there is in all.
    """

    name: str
    promises: tuple[str, ...]
    set_up: Callable[[Namespace], object]
    asker: Object
    parts: tuple[Remedy | Inspection, ...]
    given: str = "0"
    also: tuple[Remedy, ...] = ()
    transient: tuple[str, ...] = ("terminating since",)
    condition: str = "Unschedulable"
    beyond: bool = False
    message_of: str = ""

    @property
    def entry(self) -> str:
        """The name of the message in the table."""
        return self.message_of or self.name

    @property
    def message(self) -> str:
        """The whole message, with placeholders."""
        return messages.text_of(self.entry)

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """The marks of the row's tests."""
        return (pytest.mark.promise(*self.promises),) if self.promises else ()

    @property
    def ranked_reason(self) -> RankedReason:
        """What the message says is wrong, and whether no waiting helps."""
        return Reason(self.message.partition(":")[0]), self.beyond

    @property
    def who(self) -> str:
        """The name of the pod that waits."""
        return str(self.asker["metadata"]["name"])

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """Everything that lets the pod run."""
        return (*(part for part in self._told() if isinstance(part, Remedy)), *self.also)

    @property
    def inspections(self) -> tuple[Inspection, ...]:
        """The commands of the message that show more and change nothing."""
        return tuple(part for part in self._told() if isinstance(part, Inspection))

    def has_every_part(self) -> bool:
        """Return whether the parts are all that the message says after what is wrong."""
        between = f"(?:{'|'.join(map(re.escape, _BETWEEN))})*"
        others = messages.MARKED[self.entry].partition("; ")[2].split("|")[::2]
        return bool(self._told()) and all(re.fullmatch(between, text) for text in others)

    def _told(self) -> tuple[Remedy | Inspection, ...]:
        return tuple(
            replace(part, text=text) for part, text in zip(self.parts, messages.parts(self.entry), strict=True)
        )

    def wait_reported(self, namespace: Namespace) -> str:
        """Wait until the pod's condition has the row's message. Return the message."""
        expected = filled(self.message, namespace)

        def shown() -> str:
            return str(namespace.condition(self.who).get("message", ""))

        try:
            eventually(f"{self.who} waits with the row's message", lambda: shown() == expected)
        except AssertionError:
            assert shown() == expected
            raise
        return expected


def filled(text: str, namespace: Namespace) -> str:
    """Return the text with the values that its placeholders stand for."""
    text = text.replace("{ns}", namespace.name)
    return text.replace("{since}", namespace.deleted_at()) if "{since}" in text else text


def rows(*cases: Case) -> list[ParameterSet]:
    """Return a parameter set for each row and its first remedy, or for each of its remedies. Its id is a sentence."""
    return [
        pytest.param(case, remedy, id=f"{case.name}: {remedy}", marks=case.marks)
        for case in cases
        for remedy in case.remedies[: None if REMEDIES == "all" else 1]
    ]


def check(case: Case, remedy: Remedy, namespace: Namespace, scheduler: Command, operator: Installed) -> None:
    """Check that the pod waits with the row's message, in condition, event and log, and that the remedy lets it run."""
    case.set_up(namespace)
    namespace.make(case.asker)

    message = case.wait_reported(namespace)

    assert namespace.condition(case.who)["reason"] == case.condition
    eventually("an event has the message", lambda: message in _notes(namespace, case.who))
    assert scheduler.logged(message)
    assert namespace.node_of(case.who) == ""
    if remedy == case.remedies[0]:
        for inspection in case.inspections:
            operator.run("bash", "-c", filled(inspection.command, namespace), code=inspection.code)
    _let_run(case, remedy, namespace, operator)
    notes = _notes(namespace, case.who)
    assert notes.count(message) == 1
    earlier, later = notes[: notes.index(message)], notes[notes.index(message) + 1 :]
    # The watch of nodes or claims may deliver a moment later than that of pods: a node is missing, or seems Ready yet.
    assert _unexpected(earlier, ": cannot find ", *case.transient) == []
    # A deleted holder is terminating before it is gone, and a claim exists before it is bound.
    assert _unexpected(later, *case.transient) == []


def carry_out(remedy: Remedy, namespace: Namespace, operator: Installed) -> None:
    """Do what the remedy says, and what happens then."""
    if remedy.action is None:
        operator.run("bash", "-c", filled(remedy.command, namespace))
    else:
        remedy.action(namespace)
    if remedy.then is not None:
        remedy.then(namespace)


def _let_run(case: Case, remedy: Remedy, namespace: Namespace, operator: Installed) -> None:
    carry_out(remedy, namespace, operator)
    who = remedy.pod or case.who
    eventually(f"pod {who} is bound", lambda: namespace.node_of(who), seconds=5)
    bound = namespace.read(who)
    devices = case.given if remedy.given is None else remedy.given
    assert bound["spec"]["nodeName"] == remedy.node
    assert bound["metadata"].get("annotations", {}).get(objects.ASSIGNED, "") == devices


def _notes(namespace: Namespace, who: str) -> list[str]:
    """Return the notes of the pod's FailedScheduling events, oldest first."""
    return [str(event["note"]) for event in namespace.events(who) if event["reason"] == "FailedScheduling"]


def _unexpected(notes: list[str], *transient: str) -> list[str]:
    return [note for note in notes if not any(text in note for text in transient)]


def asker(text: str | None = LINE, env: list[Object] | None = None, **more: object) -> Object:
    """Return the pod of most rows: a bare pod with line 0, which is GPU 0 of node1."""
    return pod("asker-0", text, literal("0") if env is None else env, **more)


def counting(count: int = 1, **more: object) -> Object:
    """Return a pod that asks for a count. Annotations of ours are given by their name, other fields as for a pod."""
    ours = {
        f"agentaflow.gpu/{key}": str(more.pop(key)) for key in ("memory", "type", "sharing", "exclusive") if key in more
    }
    return pod("asker-0", None, reading(), annotations={"agentaflow.gpu/count": str(count), **ours}, **more)


def holder(text: str | None = OTHER, env: list[Object] | None = None, **more: object) -> Object:
    """Return a pod that is bound before `asker`: another workload with the same GPU."""
    return pod("holder-0", text, literal("0") if env is None else env, **more)


def foreign(**more: object) -> Object:
    """Return another scheduler's pod on node1."""
    return pod("foreign-0", None, [], scheduler="another", nodeName="node1", **more)


def placed_by_hand(body: Object) -> Object:
    """Return a pod of ours that is created with node1 as its node, without a scheduler."""
    return {**body, "spec": {**body["spec"], "nodeName": "node1"}}


def cluster(*parts: Object) -> Callable[[Namespace], None]:
    """Return a set-up that creates these nodes and pods in turn, and waits until each pod is bound.

    A pod has containers.
    """

    def prepare(namespace: Namespace) -> None:
        for body in parts:
            if "containers" in body.get("spec", {}):
                namespace.make(body)
                namespace.wait_bound(body["metadata"]["name"], "node1")
            else:
                namespace.add(body)

    return prepare


def plain(*pods: Object) -> Callable[[Namespace], None]:
    """Return a set-up with one large node and these pods."""
    return cluster(node("node1"), *pods)


def resources(**amounts: str) -> Object:
    """Return a node status with these amounts as capacity and allocatable. `gpus` stands for nvidia.com/gpu."""
    named = {"nvidia.com/gpu" if key == "gpus" else key: amount for key, amount in amounts.items()}
    return {"status": {"capacity": named, "allocatable": named}}


def lists(*devices: Object) -> Object:
    """Return a patch of the inventory annotation that a monitor writes on its node."""
    return {"metadata": {"annotations": objects.inventory(*devices)}}
