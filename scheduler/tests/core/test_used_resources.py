"""What the pods of each node take of it, against a plain recount over all pods."""

from collections.abc import Mapping

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_scheduler.core.cluster_events import ClusterEvent, DeviceChanged, ResourceFreed
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, EVERY_PORT, ForeignPod, HostPort, ResourceRequest
from gpu_scheduler.core.refs import PodRef

GPU = "nvidia.com/gpu"


def port(text: str) -> HostPort:
    """A port from `TCP 10.0.0.1 80`; without an address it is every one."""
    protocol, *address, number = text.split()
    return HostPort(protocol, address[0] if address else ANY_ADDRESS, int(number))


def foreign_pod(
    name: str, node: str = "node1", requests: Mapping[str, int] | None = None, ports: tuple[str, ...] = ()
) -> ForeignPod:
    """A bound pod that takes this."""
    return ForeignPod(
        PodRef("other", name, f"uid-{name}"), node, ResourceRequest(requests or {}, frozenset(map(port, ports)))
    )


PORTS = {
    "the same port": ("TCP 80", "TCP 80", True),
    "another number": ("TCP 80", "TCP 81", False),
    "another protocol": ("TCP 80", "UDP 80", False),
    "one address of two": ("TCP 10.0.0.1 80", "TCP 10.0.0.2 80", False),
    "the same address": ("TCP 10.0.0.1 80", "TCP 10.0.0.1 80", True),
    "every address, beside one": ("TCP 80", "TCP 10.0.0.1 80", True),
    "one address, beside every one": ("TCP 10.0.0.1 80", "TCP 80", True),
    "a port of SCTP": ("SCTP 80", "SCTP 80", True),
}


@pytest.mark.parametrize(("taken", "wanted", "held"), PORTS.values(), ids=PORTS)
def test_who_has_a_port(taken: str, wanted: str, held: bool) -> None:  # noqa: FBT001
    """A host gives a port once for each protocol and address; every address excludes each of them."""
    occupancy = UsedResources()
    occupancy.put(foreign_pod("web", ports=(taken,)))

    found = occupancy.port_holder("node1", port(wanted))
    assert found == ((PodRef("other", "web", "uid-web"), port(taken)) if held else None)
    assert occupancy.port_holder("node2", port(wanted)) is None


SHOWN = {
    "every address, as the number alone": ("TCP 80", "80/TCP"),
    "one address before the number": ("UDP 10.0.0.1 53", "10.0.0.1:53/UDP"),
}


@pytest.mark.parametrize(("given", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_port_reads_as_people_write_it(given: str, shown: str) -> None:
    """Messages name it so."""
    assert shown == str(port(given))


def room(*resources: str) -> set[ClusterEvent]:
    """What a pod of node1 gave back."""
    return {ResourceFreed("node1", resource) for resource in resources}


GIVEN_BACK = {
    "a pod that asks for nothing gives its place among the pods": (foreign_pod("a"), room("pods")),
    "all that it asked for": (foreign_pod("a", requests={"cpu": 1, "memory": 2}), room("pods", "cpu", "memory")),
    "its ports, whichever": (foreign_pod("a", ports=("TCP 80", "UDP 53")), room("pods", "ports")),
    "its cards of a device plugin, and with them the node's cards as a whole": (
        foreign_pod("a", requests={GPU: 2}),
        room("pods", GPU) | {DeviceChanged("node1", "")},
    ),
}


@pytest.mark.parametrize(("given", "cured_by"), GIVEN_BACK.values(), ids=GIVEN_BACK)
def test_what_a_pod_gives_back_is_told(given: ForeignPod, cured_by: set[ClusterEvent]) -> None:
    """Who waits for exactly that is woken; seeing a pod come, or come again as it is, wakes nobody."""
    occupancy = UsedResources()

    assert occupancy.put(given) == occupancy.put(given) == frozenset()
    assert cured_by == occupancy.drop(given.ref.uid)
    assert occupancy.drop(given.ref.uid) == frozenset()
    assert list(occupancy.entries()) == []


def test_a_pod_that_takes_less_gives_back_the_rest() -> None:
    """A resize in place: who waits for processor time has another look."""
    occupancy = UsedResources()
    occupancy.put(foreign_pod("a", requests={"cpu": 4}))

    assert ResourceFreed("node1", "cpu") in occupancy.put(foreign_pod("a", requests={"cpu": 1}))
    assert occupancy.used("node1", "cpu") == 1


def test_the_first_user_of_a_plugin_is_named() -> None:
    """Who came first, and when it is gone the next."""
    occupancy = UsedResources()
    for name in "cab":
        occupancy.put(foreign_pod(name, requests={GPU: 1} if name != "a" else {}))
    named = [occupancy.plugin_user("node1")]
    occupancy.drop("uid-c")

    assert [str(ref) for ref in (*named, occupancy.plugin_user("node1"))] == ["other/c", "other/b"]
    assert occupancy.plugin_user("node2") is None


def test_a_pod_may_have_one_port_on_two_addresses() -> None:
    """As proxies do: both addresses are taken, and both are free when it ends."""
    occupancy = UsedResources()
    proxy = foreign_pod("proxy", ports=("TCP 10.0.0.1 80", "TCP 10.0.0.2 80"))
    occupancy.put(proxy)
    wanted = [port("TCP 10.0.0.1 80"), port("TCP 10.0.0.2 80")]
    held = [occupancy.port_holder("node1", each) for each in wanted]
    occupancy.drop("uid-proxy")

    assert held == [(proxy.ref, each) for each in wanted]
    assert [occupancy.port_holder("node1", each) for each in wanted] == [None, None]


NAMES = st.sampled_from("abcd")
NODES = ("node1", "node2")
RESOURCES = ("cpu", "memory", GPU)
# One pod may have one number on two addresses.
SOME_PORTS = ("TCP 80", "TCP 10.0.0.1 80", "TCP 10.0.0.2 80", "UDP 80", "TCP 81")
RESIDENTS = st.builds(
    foreign_pod,
    NAMES,
    st.sampled_from(NODES),
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 5), max_size=3),
    st.sets(st.sampled_from(SOME_PORTS), max_size=3).map(tuple),
)


class Lives(RuleBasedStateMachine):
    """Pods come, change, move and go; the model is the list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.occupancy = UsedResources()
        self.there: dict[str, ForeignPod] = {}

    @rule(given=RESIDENTS)
    def put(self, given: ForeignPod) -> None:
        """A pod is seen; whatever it no longer takes is told."""
        before = self.there.get(given.ref.uid)
        cured_by = self.occupancy.put(given)
        self.there[given.ref.uid] = given
        self.check(before, given, cured_by)

    @precondition(lambda self: self.there)
    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        """A pod goes, perhaps one that is not there."""
        before = self.there.pop(f"uid-{name}", None)
        self.check(before, None, self.occupancy.drop(f"uid-{name}"))

    def check(self, before: ForeignPod | None, after: ForeignPod | None, cured_by: frozenset[ClusterEvent]) -> None:
        """What was taken and is no longer is among the wakes, and they name nothing that was not taken."""
        had, has = taken(before), taken(after)
        assert {key for key, amount in had.items() if has.get(key, 0) < amount} <= cured_by <= had.keys()

    @invariant()
    def all_is_as_a_recount_says(self) -> None:
        """Amounts, ports and the plugin's users of both nodes; and nothing is kept of an empty one."""
        for node in NODES:
            here = [each for each in self.there.values() if each.node == node]
            assert self.occupancy.used(node, "pods") == len(here)
            for resource in RESOURCES:
                total = sum(each.resource_request.requests.get(resource, 0) for each in here)
                assert self.occupancy.used(node, resource) == total
            for wanted in map(port, SOME_PORTS):
                holders = {
                    (each.ref, has) for each in here for has in each.resource_request.ports if has.overlaps(wanted)
                }
                found = self.occupancy.port_holder(node, wanted)
                assert found in holders if holders else found is None
            users = {each.ref for each in here if GPU in each.resource_request.requests}
            user = self.occupancy.plugin_user(node)
            assert user in users if users else user is None
        fresh = UsedResources()
        for each in self.there.values():
            fresh.put(each)
        assert dict(fresh.entries()) == dict(self.occupancy.entries())


def taken(given: ForeignPod | None) -> dict[ClusterEvent, int]:
    """What a pod takes, by what its end wakes."""
    if given is None:
        return {}
    amounts: dict[ClusterEvent, int] = {
        ResourceFreed(given.node, resource): amount for resource, amount in given.resource_request.requests.items()
    }
    amounts[ResourceFreed(given.node, "pods")] = 1
    if given.resource_request.ports:
        amounts[ResourceFreed(given.node, "ports")] = len(given.resource_request.ports)
    if GPU in given.resource_request.requests:
        amounts[DeviceChanged(given.node, "")] = 1
    return amounts


TestLivesOfOccupancy = Lives.TestCase


def test_too_many_ports_are_every_port() -> None:
    """Whoever has so many that they are not kept one by one keeps everybody else from all of them."""
    occupancy, port = UsedResources(), HostPort("TCP", ANY_ADDRESS, 80)
    hog = ForeignPod(PodRef("default", "hog", "u"), "node1", ResourceRequest({}, frozenset({EVERY_PORT})))
    occupancy.put(hog)

    assert occupancy.port_holder("node1", port) == (hog.ref, EVERY_PORT)
    assert occupancy.port_holder("node2", port) is None
    assert str(EVERY_PORT) == "every port"

    occupancy.drop("u")
    assert occupancy.port_holder("node1", port) is None


def test_a_resource_that_nobody_takes_any_more_is_forgotten() -> None:
    """Pods that come and go with ever other names must not fill the memory."""
    occupancy = UsedResources()
    occupancy.put(ForeignPod(PodRef("default", "stays", "s"), "node1", ResourceRequest()))
    occupancy.put(ForeignPod(PodRef("default", "goes", "g"), "node1", ResourceRequest({"example.com/odd": 1})))
    occupancy.drop("g")

    assert "example.com/odd" not in occupancy._nodes["node1"].totals
