"""Reads the test cluster's objects over one kept connection.

kubectl needs a quarter of a CPU second for each request, which the cluster lacks then, and tests poll a lot.
"""

from __future__ import annotations

import base64
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import yaml

from tests.kube_client import NOT_FOUND, KubeClient

if TYPE_CHECKING:
    from collections.abc import Mapping

FOUND: Final = 200
GROUPS: Final = {
    "/api/v1": ("pods", "nodes", "services", "secrets", "events", "persistentvolumeclaims"),
    "/apis/apps/v1": ("deployments", "statefulsets"),
    "/apis/coordination.k8s.io/v1": ("leases",),
    "/apis/events.k8s.io/v1": ("events.events.k8s.io",),
    "/apis/agentaflow.io/v1": ("gpuworkloads", "gpunodes"),
}
KINDS: Final = {kind: f"{group}/{{}}{kind.partition('.')[0]}" for group, kinds in GROUPS.items() for kind in kinds}
"""The path of each kind that tests read often, with a place for the namespace."""
QUERIES: Final = {"-l": "labelSelector", "--field-selector": "fieldSelector"}


def read(kubeconfig: Path, cluster: str, path: str) -> dict[str, Any] | None:
    """Return the object or list at the path, without managed fields; None if it does not exist.

    AssertionError with the API server's message for any other answer.
    """
    try:
        status, answer = client_of(kubeconfig, cluster).call("GET", path)
    except OSError as error:
        raise AssertionError(f"{path}: {error}") from error
    assert status in {FOUND, NOT_FOUND}, f"{path}: {answer.get('message', answer)}"
    for each in (answer, *answer.get("items", ())):
        each.get("metadata", {}).pop("managedFields", None)
    return answer if status == FOUND else None


def client_of(kubeconfig: Path, cluster: str) -> KubeClient:
    """Return the client for this kubeconfig. It keeps a connection for each thread."""
    return _client(kubeconfig, cluster, kubeconfig.stat().st_mtime_ns)


def path_of(kind: str, *arguments: str) -> str | None:
    """Return the path of what kubectl would get with these arguments; None if this function cannot derive it."""
    place = KINDS.get(kind) or KINDS.get(f"{kind}s")
    namespace, name, query = "", "", {}
    words = iter(arguments)
    for word in words:
        option, _, value = word.partition("=")
        if option == "-n":
            namespace = f"namespaces/{next(words)}/"
        elif option in QUERIES:
            query[QUERIES[option]] = value or next(words)
        elif option != "-A":
            name = f"/{word}"
    if place is None or name.startswith("/-"):
        return None
    return place.format(namespace) + name + (f"?{urlencode(query)}" if query else "")


@lru_cache(maxsize=1)
def _client(kubeconfig: Path, name: str, changed: int) -> KubeClient:
    """Return a client with the kubeconfig's credentials.

    `changed` distinguishes the kubeconfig of a recreated cluster.
    """
    del changed
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    (cluster,) = (each["cluster"] for each in config["clusters"] if each["name"] == name)
    (user,) = (each["user"] for each in config["users"] if each["name"] == name)
    port = urlsplit(cluster["server"]).port
    assert port is not None
    with tempfile.TemporaryDirectory() as folder:
        ca, pair = Path(folder) / "ca.crt", Path(folder) / "pair.pem"
        ca.write_bytes(_decoded(cluster, "certificate-authority-data"))
        pair.write_bytes(_decoded(user, "client-certificate-data") + _decoded(user, "client-key-data"))
        return KubeClient(port, str(ca), pair=str(pair))


def _decoded(values: Mapping[str, str], key: str) -> bytes:
    return base64.b64decode(values[key])
