"""How our modules ask an API server, and write to it: kubectl, which knows every way to log in, and starts at once."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Json = dict[str, Any]

MANAGER: Final = "gpu-scheduler-ansible"
# More objects of one collection than these are read by a list, where the collection has no more than that.
FEW: Final = 2
LISTED: Final = 200
PARALLEL: Final = 4
CALL_TIMEOUT: Final = 60


class ClusterError(Exception):
    """The API server refused or did not answer; the text is one sentence."""


def plural(kind: str) -> str:
    """Return the resource of a kind."""
    word = kind.lower()
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}{'es' if word.endswith('s') else 's'}"


def collection(api_version: str, kind: str, namespace: str) -> str:
    """Return the path of a collection at the API server."""
    root = "/api" if "/" not in api_version else "/apis"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{api_version}{within}/{plural(kind)}"


class Reference(NamedTuple):
    """What identifies an object."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Reference:
        """Return the reference of an object or of a definition."""
        metadata = body["metadata"]
        return cls(
            str(body["apiVersion"]), str(body["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"])
        )

    @property
    def where(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def collection(self) -> str:
        """The path of its collection at the API server."""
        return collection(self.api_version, self.kind, self.namespace)

    @property
    def path(self) -> str:
        """The object's path at the API server."""
        return f"{self.collection}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.where}"


class Cluster:
    """The API server that kubectl leads to."""

    def __init__(self, kubectl: list[str]) -> None:
        """`kubectl` is the program with its options."""
        self._kubectl = kubectl

    def run(self, *words: str, text: str = "") -> str:
        """Return kubectl's output; raise ClusterError where it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - the command is the caller's kubectl
                [*self._kubectl, *words], input=text, capture_output=True, text=True, timeout=CALL_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"the API server gave no answer within {CALL_TIMEOUT} s") from None
        except OSError as error:
            raise ClusterError(f"cannot run {self._kubectl[0]}: {error.strerror}") from error
        if done.returncode:
            raise ClusterError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "kubectl failed")
        return done.stdout

    def get(self, path: str) -> Json | None:
        """Return the object at this path; None where there is none, or no such kind."""
        try:
            found: Json = json.loads(self.run("get", "--raw", path))
        except ClusterError as error:
            if "(NotFound)" in str(error):
                return None
            raise
        return found

    def items(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[Json]:
        """Return the objects of a collection; none where there is no such kind."""
        words = f"?{urlencode(query)}" if query else ""
        listed = self.get(f"{collection(api_version, kind, namespace)}{words}") or {"items": []}
        # A list leaves out what each of its items is.
        return [{"apiVersion": api_version, "kind": kind, **body} for body in listed["items"]]

    def get_all(self, references: Iterable[Reference]) -> dict[Reference, Json]:
        """Return the objects that exist, in the order of the references."""
        collections: dict[str, list[Reference]] = {}
        for reference in references:
            collections.setdefault(reference.collection, []).append(reference)
        with ThreadPoolExecutor(PARALLEL) as pool:
            found = pool.map(lambda item: self._get_of(*item), collections.items())
            return {reference: body for bodies in found for reference, body in bodies}

    def _list(self, path: str) -> Json | None:
        """Return a list of this collection; None if there is none, or if the user may read only single objects."""
        try:
            return self.get(f"{path}?limit={LISTED}")
        except ClusterError as error:
            if "(Forbidden)" not in str(error):
                raise
            return None

    def _get_of(self, path: str, references: list[Reference]) -> list[tuple[Reference, Json]]:
        """Return those objects of one collection that exist: a few by their names, many by one list."""
        listed = self._list(path) if len(references) > FEW else None
        if listed and not listed["metadata"].get("continue"):
            bodies = {body["metadata"]["name"]: body for body in listed["items"]}
        else:
            bodies = {each.name: self.get(each.path) for each in references}
        of_kind = [(each, bodies.get(each.name)) for each in references]
        return [(each, {"apiVersion": each.api_version, "kind": each.kind, **body}) for each, body in of_kind if body]

    def delete(self, reference: Reference, uid: str) -> bool:
        """Delete the object where it still has this uid; return whether it is gone."""
        # What a workload runs must have ended before its rights go.
        policy = "Foreground" if reference.api_version in {"apps/v1", "batch/v1"} else "Background"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            answer = self.run(
                "delete", "--raw", reference.path, "-f", "-", text=json.dumps({**options, "propagationPolicy": policy})
            )
        except ClusterError as error:
            if "(NotFound)" in str(error) or "(Conflict)" in str(error):
                return True
            raise
        return bool(json.loads(answer).get("kind") == "Status")

    def write(self, body: Json) -> None:
        """Apply an object as ours."""
        options = ("--server-side", "--force-conflicts", f"--field-manager={MANAGER}", "--validate=false")
        self.run("apply", *options, "-f", "-", text=json.dumps(body))
