"""Reads the API server's metric of requests by verb, resource and subresource."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.kube_client import KubeClient

# Resources that the scheduler requests. Others are left out: the API server's own components request them, and Leases
# are renewed all the time.
OURS: Final = frozenset(
    {
        "pods",
        "nodes",
        "events",
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses",
        "configmaps",
        "bindings",
        "pytorchjobs",
        "resourceclaims",
    }
)


def requests(kube: KubeClient, codes: str = "") -> Counter[str]:
    """Count requests since the API server's start, keyed `POST pods/binding`, whose status code begins with `codes`.

    Watches are left out unless they failed: each is renewed when its time is over.
    """
    counts: Counter[str] = Counter()
    for line in str(kube.call("GET", "/metrics")[1]["text"]).splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            what = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
            renewed = labels["verb"] == "WATCH" and labels["code"].startswith("2")
            if labels["resource"] in OURS and labels["code"].startswith(codes) and not renewed:
                counts[f"{labels['verb']} {what}"] += int(float(line.rpartition(" ")[2]))
    return counts
