"""The scheduling loop with pods that take any line of a long map, of which one decision checks a part."""

from __future__ import annotations

from gpu_scheduler.core.refs import Owner
from unit_tests.core.build import pod
from unit_tests.scheduler.test_scheduling_loop import looping

LONG = "".join(f"{index}=gone:0\n" for index in range(1200)) + "1200=node1:0"


async def test_a_long_map_is_checked_by_one_decision_after_another() -> None:
    """The last line fits alone. The pod gets it though nothing else happens."""
    async with looping() as loop:
        await loop.see(
            pod("web-a", LONG, generate_name="web-", owner=Owner("ReplicaSet", "web")), pod("other-0", "0=node2:0")
        )

        assert sorted(loop.binder.names()) == ["other-0", "web-a"]
        assert loop.scheduler.attempts == 6
