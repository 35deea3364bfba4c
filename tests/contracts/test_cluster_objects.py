"""Roles read all that they need of a cluster by one task, and need no right on a kind that it does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.contracts.cluster_modules import load_module, load_part

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

kubectl = load_part("kubectl")
reading = load_module("plugins", "modules", "cluster_objects.py")
_Cluster: Any = kubectl.Cluster

SECRETS: Final = "/api/v1/namespaces/system/secrets"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1"
FORBIDDEN: Final = "Error from server (Forbidden): the user cannot"


class FakeCluster(_Cluster):  # type: ignore[misc]  # the module is loaded from its file
    """Answers by path. What is asked for and has no answer is forbidden."""

    def __init__(self, **answers: Json | None) -> None:
        super().__init__(["kubectl"])
        self._answers = answers

    def get(self, path: str) -> Json | None:
        """Return the answer; raise as kubectl does where there is none."""
        if path not in self._answers:
            raise kubectl.ClusterError(FORBIDDEN)
        return self._answers[path]


def asked(kind: str, name: str = "", namespace: str = "", api_version: str = "v1", selector: str = "") -> Json:
    """Return an entry of the task as Ansible completes it."""
    return {"api_version": api_version, "kind": kind, "namespace": namespace, "name": name, "selector": selector}


POLICY: Final = asked("MutatingAdmissionPolicy", "injects", api_version="admissionregistration.k8s.io/v1")


def test_an_object_and_a_collection_are_lists() -> None:
    """So a role needs no other word for what is missing. Items, read page by page, say what they are."""
    nodes: list[Json] = [{"items": [{"metadata": {"name": f"node{index}"}}], "metadata": {}} for index in (1, 2)]
    nodes[0]["metadata"] = {"continue": "here"}
    path = "/api/v1/nodes?labelSelector=gpu%3Dtrue&limit=500"
    cluster = FakeCluster(
        **{
            f"{SECRETS}/ca": {"kind": "Secret", "metadata": {"name": "ca"}},
            f"{SECRETS}/pair": None,
            path: nodes[0],
            f"{path}&continue=here": nodes[1],
        }
    )

    assert reading.read(cluster, asked("Secret", "ca", "system"))[0]["metadata"]["name"] == "ca"
    assert reading.read(cluster, asked("Secret", "pair", "system")) == []
    assert reading.read(cluster, asked("Node", selector="gpu=true")) == [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("node1", "node2")
    ]


@pytest.mark.parametrize("served", [None, {"resources": [{"kind": "ValidatingAdmissionPolicy"}]}])
def test_a_kind_that_the_api_server_does_not_know_needs_no_right(served: Json | None) -> None:
    """An API server refuses before it looks for the kind."""
    assert reading.read(FakeCluster(**{POLICIES: served}), POLICY) == []


def test_a_missing_right_is_named() -> None:
    """On a kind that the API server knows."""
    cluster = FakeCluster(**{POLICIES: {"resources": [{"kind": "MutatingAdmissionPolicy"}]}})

    with pytest.raises(kubectl.ClusterError, match="Forbidden"):
        reading.read(cluster, POLICY)


SAID: Final = {
    "warnings and lines of its log": (
        'W1128 04:14:04.1 1 memcache.go:265] "cannot list"\nWarning: v1 is old\nError from server (Forbidden): no\n',
        "Error from server (Forbidden): no",
    ),
    "advice": (
        "error: exec: login not found\n\nTo learn more, see the documentation\n",
        "error: exec: login not found",
    ),
    "nothing": ("", "kubectl failed"),
    "no such kind": (
        'error: unable to recognize "STDIN": no matches for kind "Issuer" in version "example.com/v1"\n',
        "",
    ),
    "no such kind, in two lines": (
        'resource mapping not found for name: "a": no matches for kind "Issuer"\nensure CRDs are installed first\n',
        "",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_of_what_kubectl_says_the_errors_count(tmp_path: Path, name: str) -> None:
    """Several versions of it say that nobody serves a kind, which then has no objects."""
    said, error = SAID[name]
    (tmp_path / "said").write_text(said)
    cluster = kubectl.Cluster(["sh", "-c", 'cat "$0" >&2; exit 1', str(tmp_path / "said")])
    try:
        found = cluster.get_all([kubectl.Reference("example.com/v1", "Issuer", "b", "a")])
    except kubectl.ClusterError as raised:
        found = str(raised)

    assert (found or "") == error
