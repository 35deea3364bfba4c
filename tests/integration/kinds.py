"""Kinds that others define: their CRDs from the cache, and objects of these kinds on a real API server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import yaml

from tests.integration.programs import pinned
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.kube_client import KubeClient
    from tests.objects import Object

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class _Loader(yaml.CSafeLoader):
    """Reads a lone `=` as text, as YAML 1.2 does."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


def definitions(name: str) -> list[Object]:
    """Return the CRDs of argo-cd or prometheus-operator. Raise FileNotFoundError if there are none."""
    files = sorted(pinned(f"kinds-{name}").glob("*.yaml"))
    return [yaml.load(path.read_text(), _Loader) for path in files]  # noqa: S506 - a safe one


def define(kube: KubeClient, name: str) -> None:
    """Create the CRDs, and wait until the API server serves and lists them.

    It may list a kind 2 s after it serves it. Prometheus Operator looks once, and ignores kinds that are not listed.
    """
    for body in definitions(name):
        kube.create(DEFINITIONS, body)
    for body in definitions(name):
        group, version = body["spec"]["group"], body["spec"]["versions"][0]["name"]
        plural = body["spec"]["names"]["plural"]
        eventually(f"{plural}.{group} is served", partial(_served, kube, f"/apis/{group}/{version}", plural))


def _served(kube: KubeClient, path: str, plural: str) -> bool:
    status, listed = kube.call("GET", path)
    if status != 200 or all(each["name"] != plural for each in listed["resources"]):
        return False
    return kube.call("GET", f"{path}/{plural}")[0] == 200
