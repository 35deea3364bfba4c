"""What the API server counted: requests by verb, resource and subresource."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.kube_client import KubeClient

# What a scheduler may ask for. The API server's own parts ask for other things, and a lease is renewed all the time.
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
    }
)


def requests(kube: KubeClient, codes: str = "") -> Counter[str]:
    """Count the requests so far, as `POST pods/binding`: all, or those whose answer's code begins so."""
    counts: Counter[str] = Counter()
    for line in str(kube.call("GET", "/metrics")[1]["text"]).splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            what = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
            if labels["resource"] in OURS and labels["code"].startswith(codes):
                counts[f"{labels['verb']} {what}"] += int(float(line.rpartition(" ")[2]))
    return counts
