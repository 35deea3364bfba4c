"""The scheduler asks for exactly the rights that the roles grant it."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import pytest

from gpu_scheduler.scheduler.access import needed_rights
from gpu_scheduler.settings import RunSettings
from tests.contracts.rights import ISOLATING, RIGHTS


@pytest.mark.parametrize("isolation", ["env", "dra"])
def test_the_scheduler_asks_for_the_rights_that_it_is_granted(isolation: Literal["env", "dra"]) -> None:
    """With the roles' rights it reports nothing as missing, and it reports each of them that is missing."""
    granted: dict[tuple[str, tuple[str, str, str]], set[str]] = {
        (role, key): verbs
        for role in ("ClusterRole gpu-scheduler", "Role gpu-scheduler", "Role gpu-scheduler-reads-monitor")
        for key, verbs in RIGHTS[role].items()
    }
    if isolation == "dra":
        granted |= {("ClusterRole gpu-scheduler", key): verbs for key, verbs in ISOLATING.items()}
    namespaces = {
        "": "ClusterRole gpu-scheduler",
        "gpu-scheduler-system": "Role gpu-scheduler",
        "gpu-scheduler-monitor": "Role gpu-scheduler-reads-monitor",
    }
    asked: dict[tuple[str, tuple[str, str, str]], set[str]] = defaultdict(set)
    settings = RunSettings(kubernetes_namespace="gpu-scheduler-system", isolation=isolation)
    for right in needed_rights(settings, leader_elect=True):
        asked[namespaces[right.namespace], (right.group, right.resource, right.name)] |= set(right.verbs)

    assert asked == granted
