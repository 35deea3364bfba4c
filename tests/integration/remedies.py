"""What a message names after what is wrong: remedies, and commands that only show more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.integration import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.namespace import Namespace
    from tests.objects import Object

LONGEST: Final = 70


@dataclass(frozen=True, slots=True)
class Remedy:
    """A part of a message that lets a pod run.

    Without an `action`, it is the command in `text`, in which `values` replace words that stand for something else.
    """

    action: Callable[[Namespace], object] | None = None
    given: str | None = None
    """The devices that the pod gets; None for those of the row."""
    node: str = "node1"
    attempts: int = 3
    """The most attempts that it causes: each write may cause one, also the scheduler's own of a claim's node."""
    pod: str = ""
    """The pod that runs then; empty for the pod of the row."""
    values: tuple[tuple[str, str], ...] = ()
    then: Callable[[Namespace], object] | None = None
    """What happens next: another remedy is needed, or a controller acts that does not run in the tests."""
    text: str = ""
    """The part of the message, which stands in the table, or what happens if the message does not name it."""

    @property
    def makes_anew(self) -> bool:
        """Whether it makes a pod or a claim anew."""
        return isinstance(self.action, Steps) and self.action.anew

    @property
    def command(self) -> str:
        """The command in `text`."""
        found = self.text[self.text.index("kubectl ") :]
        for word, value in self.values:
            assert word in found
            found = found.replace(word, value)
        return found

    def __str__(self) -> str:
        """Return the beginning of the text, for the id of a test."""
        text = " ".join(self.text.split())
        return text if len(text) <= LONGEST else f"{text[:LONGEST].rpartition(' ')[0]} ..."


@dataclass(frozen=True, slots=True)
class Inspection:
    """A part of a message that shows more and changes nothing."""

    code: int = 0
    """The exit code of the command."""
    text: str = ""
    """The part of the message, which stands in the table."""

    @property
    def command(self) -> str:
        """The command in `text`."""
        found = re.search(r"kubectl [^(),]*", self.text)
        assert found is not None
        return found[0].removesuffix(" may tell why")


class Steps:
    """A set-up or a remedy of several steps. `anew` says whether one of them makes a pod or a claim anew."""

    def __init__(self, *steps: Callable[[Namespace], object], anew: bool = False) -> None:
        """Do nothing yet."""
        self._steps = steps
        self.anew: bool = anew or any(step.anew for step in steps if isinstance(step, Steps))

    def __call__(self, namespace: Namespace) -> None:
        """Take the steps in turn."""
        for step in self._steps:
            step(namespace)


def anew(body: Object, name: str = "asker-0") -> Steps:
    """Return a remedy that deletes a pod and makes this one in its place."""
    return Steps(gone(name), lambda namespace: namespace.make(body), anew=True)


def gone(*names: str) -> Callable[[Namespace], None]:
    """Return a remedy that deletes pods; without names, the holder."""

    def delete(namespace: Namespace) -> None:
        for name in names or ("holder-0",):
            namespace.delete(name)

    return delete


def ended(*names: str) -> Callable[[Namespace], None]:
    """Return a remedy that waits until pods end: they finish. Without names, the holder."""

    def finish(namespace: Namespace) -> None:
        for name in names or ("holder-0",):
            namespace.finish(name)

    return finish


def patched(body: Object, name: str = "node1") -> Callable[[Namespace], None]:
    """Return a remedy that changes a node."""
    return lambda namespace: namespace.patch_node(name, body)


def added(body: Object) -> Callable[[Namespace], None]:
    """Return a remedy that adds a node."""
    return lambda namespace: namespace.add(body)


def limited_to(line: str) -> Callable[[Namespace], None]:
    """Return a remedy that writes this line for the namespace into the ConfigMap of limits."""
    return lambda namespace: limits.write(namespace.kube, f"{namespace.name}: {line}")
