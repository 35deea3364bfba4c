"""The used resources of each node, against a plain recount over all pods."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_scheduler.core.cluster_events import ClusterEvent, DeviceChanged, ResourceFreed
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, EVERY_PORT, ForeignPod, HostPort, ResourceRequest
from gpu_scheduler.core.refs import PodRef

GPU = "nvidia.com/gpu"


def port(text: str) -> HostPort:
    """Return the port of a text such as `TCP 10.0.0.1 80`; without an address it is the port of every address."""
    protocol, *address, number = text.split()
    return HostPort(protocol, address[0] if address else ANY_ADDRESS, int(number))


def foreign_pod(
    name: str, node: str = "node1", requests: Mapping[str, int] | None = None, ports: tuple[str, ...] = ()
) -> ForeignPod:
    """Return a bound pod that uses these resources."""
    return ForeignPod(
        PodRef("other", name, f"uid-{name}"), node, ResourceRequest(requests or {}, frozenset(map(port, ports)))
    )


SHOWN = {
    "every address, as the number alone": ("TCP 80", "80/TCP"),
    "one address before the number": ("UDP 10.0.0.1 53", "10.0.0.1:53/UDP"),
}


@pytest.mark.parametrize(("given", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_port_is_written_with_its_protocol(given: str, shown: str) -> None:
    """Messages write it so."""
    assert shown == str(port(given))


def test_a_request_of_nothing_takes_nothing() -> None:
    """Ledgers are equal whether or not a pod names a resource of which it takes none."""
    with_zero, without = UsedResources(), UsedResources()
    with_zero.put(foreign_pod("a", requests={"cpu": 0}))
    without.put(foreign_pod("a"))

    amounts = [[entry for entry in used.entries() if entry[0][0] == "used"] for used in (with_zero, without)]  # type: ignore[index]
    assert amounts[0] == amounts[1] == [(("used", "node1", "pods"), 1)]


def test_the_first_user_of_a_plugin_is_named() -> None:
    """The first pod with devices of the plugin is named, and after its end the next."""
    used = UsedResources()
    for name in "cab":
        used.put(foreign_pod(name, requests={GPU: 1} if name != "a" else {}))
    named = [used.plugin_user("node1")]
    used.drop("uid-c")

    assert [str(ref) for ref in (*named, used.plugin_user("node1"))] == ["other/c", "other/b"]
    assert used.plugin_user("node2") is None


def test_a_port_is_in_use_until_its_last_pod_ends() -> None:
    """Two pods have it on different addresses."""
    used = UsedResources()
    for name in "ab":
        used.put(foreign_pod(name, ports=(f"TCP 10.0.0.{ord(name)} 80",)))
    used.drop("uid-a")

    assert [key for key, _ in used.entries() if key[0] == "ports"] == [("ports", "node1", ("TCP", 80))]  # type: ignore[index]
    assert used.port_holder("node1", port("TCP 80")) == (PodRef("other", "b", "uid-b"), port("TCP 10.0.0.98 80"))


NAMES = st.sampled_from("abcd")
NODES = ("node1", "node2")
RESOURCES = ("cpu", "memory", GPU)
# One pod may have one number on two addresses.
SOME_PORTS = ("TCP 80", "TCP 10.0.0.1 80", "TCP 10.0.0.2 80", "UDP 80", "TCP 81")
FOREIGN_PODS = st.builds(
    foreign_pod,
    NAMES,
    st.sampled_from(NODES),
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 5), max_size=3),
    st.sets(st.sampled_from(SOME_PORTS), max_size=3).map(tuple),
)


class UsedResourcesMachine(RuleBasedStateMachine):
    """Create, change, move and delete pods; the model is a dictionary of them."""

    def __init__(self) -> None:
        super().__init__()
        self.used_resources = UsedResources()
        self.pods: dict[str, ForeignPod] = {}

    @rule(given=FOREIGN_PODS)
    def put(self, given: ForeignPod) -> None:
        """Put a pod; the events name what it no longer uses."""
        before = self.pods.get(given.ref.uid)
        cured_by = self.used_resources.put(given)
        self.pods[given.ref.uid] = given
        self.check(before, given, cured_by)

    @precondition(lambda self: self.pods)
    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        """Drop a pod, perhaps an unknown one."""
        before = self.pods.pop(f"uid-{name}", None)
        self.check(before, None, self.used_resources.drop(f"uid-{name}"))

    @precondition(lambda self: self.pods)
    @rule(number=st.integers(0, 3))
    def put_again(self, number: int) -> None:
        """A pod that has not changed frees nothing."""
        same = replace([*self.pods.values()][number % len(self.pods)])
        assert self.used_resources.put(same) == frozenset()

    def check(self, before: ForeignPod | None, after: ForeignPod | None, cured_by: frozenset[ClusterEvent]) -> None:
        """Check that the events name every resource that was freed, and none that the pod did not use."""
        had, has = taken(before), taken(after)
        assert {key for key, amount in had.items() if has.get(key, 0) < amount} <= cured_by <= had.keys()

    @invariant()
    def all_is_as_a_recount_says(self) -> None:
        """Amounts, ports and the plugin's users of both nodes are as recounted; nothing is kept of an empty node."""
        for node in NODES:
            here = [each for each in self.pods.values() if each.node == node]
            assert self.used_resources.used(node, "pods") == len(here)
            for resource in RESOURCES:
                total = sum(each.resource_request.requests.get(resource, 0) for each in here)
                assert self.used_resources.used(node, resource) == total
            for wanted in map(port, SOME_PORTS):
                holders = {
                    (each.ref, has) for each in here for has in each.resource_request.ports if has.overlaps(wanted)
                }
                found = self.used_resources.port_holder(node, wanted)
                assert found in holders if holders else found is None
            users = {each.ref for each in here if GPU in each.resource_request.requests}
            user = self.used_resources.plugin_user(node)
            assert user in users if users else user is None
        fresh = UsedResources()
        for each in self.pods.values():
            fresh.put(each)
        assert dict(fresh.entries()) == dict(self.used_resources.entries())


def taken(given: ForeignPod | None) -> dict[ClusterEvent, int]:
    """Return the amounts that a pod uses, by the event that frees them."""
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


TestUsedResources = UsedResourcesMachine.TestCase


def test_too_many_ports_are_every_port() -> None:
    """A pod with too many ports to keep one by one holds all ports of its node."""
    used, port = UsedResources(), HostPort("TCP", ANY_ADDRESS, 80)
    hog = ForeignPod(PodRef("default", "hog", "u"), "node1", ResourceRequest({}, frozenset({EVERY_PORT})))
    used.put(hog)

    assert used.port_holder("node1", port) == (hog.ref, EVERY_PORT)
    assert used.port_holder("node2", port) is None
    assert str(EVERY_PORT) == "every port"

    used.drop("u")
    assert used.port_holder("node1", port) is None


def test_a_resource_without_users_is_forgotten() -> None:
    """Pods with ever other resource names do not fill the memory."""
    used = UsedResources()
    used.put(ForeignPod(PodRef("default", "stays", "s"), "node1", ResourceRequest()))
    used.put(ForeignPod(PodRef("default", "goes", "g"), "node1", ResourceRequest({"example.com/odd": 1})))
    used.drop("g")

    assert "example.com/odd" not in used._nodes["node1"].totals
