"""How our modules ask an API server, and write to it: kubectl, which knows every way to log in, and starts at once."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Json = dict[str, Any]

MANAGER: Final = "gpu-scheduler-ansible"
PARALLEL: Final = 8
PAGE: Final = 500
# A kubectl asks for one object after the other: fewer than these are not worth another process.
TOGETHER: Final = 16
CALL_TIMEOUT: Final = 60
MOST_NAMED: Final = 5
# What kubectl says beside an error: warnings, and lines of its log.
ASIDE: Final = re.compile(r"Warning: |[EIW][0-9]{4} ")
# What it says of a kind that the API server does not know, and what some versions add.
UNSERVED: Final = "no matches for kind|^ensure CRDs are installed first"
NOTHING: Final = "(?!)"
"""Matches no line."""


class ClusterError(Exception):
    """The API server refused or did not answer; the text is one sentence."""


def few(words: list[str]) -> str:
    """Return the first words, and how many more there are."""
    more = len(words) - MOST_NAMED
    return ", ".join(words[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def without_advice(complaints: list[str]) -> Iterator[str]:
    """Return what stands before kubectl's advice, which follows an empty line."""
    return takewhile(str.strip, complaints)


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
    def body(self) -> Json:
        """The object, as far as this says what it is."""
        metadata = {"name": self.name, **({"namespace": self.namespace} if self.namespace else {})}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}

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

    def __init__(self, kubectl: list[str], timeout: int | None = None) -> None:
        """`kubectl` is the program with its options; each call gets `timeout` seconds."""
        self._kubectl = kubectl
        self._timeout = timeout or CALL_TIMEOUT

    def failure(self, text: str) -> ClusterError:
        """Return the error for what kubectl says."""
        return ClusterError(text)

    def call(self, words: Iterable[str], text: str = "") -> tuple[str, list[str]]:
        """Return kubectl's output, and its complaints where it fails; raise ClusterError where it does not end."""
        try:
            done = subprocess.run(  # noqa: S603 - the command is the caller's kubectl
                [*self._kubectl, *words],
                input=text,
                capture_output=True,
                text=True,
                # A log may have any bytes.
                errors="replace",
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self.failure(f"the API server gave no answer within {self._timeout} s") from None
        except OSError as error:
            raise self.failure(f"cannot run {self._kubectl[0]}: {error.strerror}") from error
        complaints = "\n".join(line for line in done.stderr.splitlines() if not ASIDE.match(line)).strip()
        return done.stdout, (complaints or "kubectl failed").splitlines() if done.returncode else []

    def run(self, *words: str, text: str = "") -> str:
        """Return kubectl's output; raise ClusterError where it fails."""
        output, complaints = self.call(words, text)
        if complaints:
            raise self.failure(" ".join(without_advice(complaints)))
        return output

    def run_all(self, words: Iterable[str], bodies: list[Json], spared: str = NOTHING) -> Iterator[str]:
        """Hand the objects to as few kubectl as answer soon, and yield the output of each, in order.

        Raise ClusterError where one complains of anything but what `spared` matches.
        """
        size = max(TOGETHER, -(-len(bodies) // PARALLEL))
        parts = [bodies[start : start + size] for start in range(0, len(bodies), size)]
        texts = [json.dumps({"apiVersion": "v1", "kind": "List", "items": part}) for part in parts]
        with ThreadPoolExecutor(PARALLEL) as pool:
            for output, complaints in pool.map(lambda text: self.call(words, text), texts):
                faults = [line for line in without_advice(complaints) if not re.search(spared, line)]
                if faults:
                    raise self.failure(" ".join(faults))
                yield output

    def get(self, path: str) -> Json | None:
        """Return the object at this path; None where there is none, or no such kind."""
        try:
            found: Json = json.loads(self.run("get", "--raw", path))
        except ClusterError as error:
            if "(NotFound)" in str(error):
                return None
            raise
        return found

    def items(self, api_version: str, kind: str, namespace: str = "", **query: str) -> Iterator[Json]:
        """Yield the objects of a collection, page by page; none where there is no such kind."""
        path, query = collection(api_version, kind, namespace), {**query, "limit": str(PAGE)}
        while page := self.get(f"{path}?{urlencode(query)}"):
            # A list leaves out what each of its items is.
            yield from ({"apiVersion": api_version, "kind": kind, **body} for body in page["items"])
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                break

    def get_all(self, references: Iterable[Reference], *, readable: bool = False) -> dict[Reference, Json]:
        """Return the objects that exist, in the order of the references.

        With `readable` those are left out that the user may not read; else they are an error.
        """
        wanted = list(references)
        words = ("get", "--filename=-", "--ignore-not-found", "--show-managed-fields", "--output=json")
        spared = rf"{UNSERVED}|\(Forbidden\)" if readable else UNSERVED
        outputs = self.run_all(words, [each.body for each in wanted], spared)
        listed = [body for output in outputs if output for body in json.loads(output)["items"]]
        found = {Reference.of(body): body for body in listed}
        return {each: found[each] for each in wanted if each in found}

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
