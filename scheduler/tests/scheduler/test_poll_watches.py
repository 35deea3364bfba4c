"""News that watches leave lying are read as soon as a decision needs them."""

import asyncio

from gpu_scheduler.core.pods.pod import ForeignPod, ResourceRequest
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from tests.core.build import node, pod
from tests.fakes import FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder
from tests.kube.peers import HEAD, WATCH, Talk, asking, chunk, schemes, serving


@schemes
async def test_who_needs_the_news_does_not_wait_for_the_pause(scheme: str) -> None:
    """What has come meanwhile is read at once; where nothing rests, there is nothing to hurry."""
    said = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD + chunk(b"first"))
        await said.wait()
        await talk.say(chunk(b"second"))
        await asyncio.sleep(9)

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(9.0) as stream:
                await stream.begin(WATCH)
                pieces = stream.chunks(3)
                assert await anext(pieces) == b"first"
                said.set()
                await asyncio.sleep(0.1)

                assert stream.poll_watches()
                assert await anext(pieces) == b"second"
                assert stream.poll_watches()
                assert not stream.poll_watches()


async def test_a_decision_is_made_by_what_was_left_lying() -> None:
    """A pod of another scheduler that came just before ours has its room."""
    binder, recorder, lying = FakeBinder([]), FakeRecorder(), [True]
    ports = Ports(binder, FakeClaims(), FakeEventRecorder(), recorder, recorder)
    theirs = ForeignPod(PodRef("default", "theirs", "uid-theirs"), "node1", ResourceRequest({"cpu": 1000}))

    def poll_watches() -> bool:
        if not lying:
            return False
        lying.clear()
        asyncio.get_running_loop().call_soon(scheduler.world.foreign_pods.applied, theirs)
        return True

    scheduler = Scheduler(Policy(), ports, poll_watches=poll_watches)
    scheduler.world.nodes.applied(node("node1", allocatable={"cpu": 1000, "pods": 10}))
    scheduler.pods.applied(pod("ours-0", "0=node1:0\n", resource_request=ResourceRequest({"cpu": 1000})))
    task = asyncio.create_task(scheduler.run())
    for _ in range(60):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert binder.sent == []
    assert scheduler.queue.counts()["unschedulable"] == 1
