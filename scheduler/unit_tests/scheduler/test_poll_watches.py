"""Watch events that a paused watch has not read yet are read as soon as a decision needs them."""

import asyncio

from gpu_scheduler.core.pods.pod import ForeignPod, ResourceRequest
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from unit_tests.core.build import node, pod
from unit_tests.fakes import FakeAllocator, FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder
from unit_tests.kube.peers import HEAD, WATCH, ServerConnection, chunk, connection_pool, schemes, serving
from unit_tests.virtual import settle


@schemes
async def test_poll_watches_ends_the_pause_of_a_watch(scheme: str) -> None:
    """Events that came during the pause are read at once. Without a paused watch, it returns False."""
    first_read = asyncio.Event()

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD + chunk(b"first"))
        await first_read.wait()
        await connection.send(chunk(b"second"))
        await asyncio.sleep(9)

    async with serving(script, scheme) as peer:
        with connection_pool(peer) as connections:
            async with connections.stream(9.0) as stream:
                await stream.begin(WATCH)
                pieces = stream.chunks(3)
                assert await anext(pieces) == b"first"
                first_read.set()
                await settle()

                assert stream.poll_watches()
                assert await anext(pieces) == b"second"
                assert stream.poll_watches()
                assert not stream.poll_watches()


async def test_a_decision_sees_the_unread_watch_events() -> None:
    """A pod of another scheduler that came just before ours keeps its resources."""
    binder, recorder, unread = FakeBinder([]), FakeRecorder(), [True]
    ports = Ports(binder, FakeClaims(), FakeAllocator(), FakeEventRecorder(), recorder, recorder, recorder)
    theirs = ForeignPod(PodRef("default", "theirs", "uid-theirs"), "node1", ResourceRequest({"cpu": 1000}))

    def poll_watches() -> bool:
        if not unread:
            return False
        unread.clear()
        asyncio.get_running_loop().call_soon(scheduler.cache.foreign_pods.applied, theirs)
        return True

    scheduler = Scheduler(Policy(), ports, poll_watches=poll_watches)
    scheduler.cache.nodes.applied(node("node1", allocatable={"cpu": 1000, "pods": 10}))
    scheduler.pods.applied(pod("ours-0", "0=node1:0\n", resource_request=ResourceRequest({"cpu": 1000})))
    task = asyncio.create_task(scheduler.run())
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert binder.sent == []
    assert scheduler.queue.counts()["unschedulable"] == 1
