"""Pods that wait for nodes, room and volumes: each message, and a remedy of it, or each in suite sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration import feasibility_nodes
from tests.integration.feasibility_case import Case, check, rows

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.installed import Installed
    from tests.integration.namespace import Namespace
    from tests.integration.remedies import Remedy


@pytest.mark.promise("text-1", "text-2", "text-3", "text-8")
@pytest.mark.parametrize(("case", "remedy"), rows(*feasibility_nodes.CASES))
def test_a_pod_waits_with_one_message_until_a_remedy(
    namespace: Namespace, scheduler: Command, operator: Installed, case: Case, remedy: Remedy
) -> None:
    """The message is reported once, as a whole. After the remedy the pod is bound."""
    check(case, remedy, namespace, scheduler, operator)
