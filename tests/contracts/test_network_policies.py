"""Who reaches whom: the NetworkPolicies that role network_policies applies, evaluated for our own pods.

Nothing here enforces them: what is tested is the objects, and what they mean. tests/integration/test_charts.py holds
the chart's equal to these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.network_policies import Peer, Port, connects, isolating, pods_of, policies_of, selects
from tests.contracts.rendering import once_rendered
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.network_policies import Manifest

    Render = Callable[[str], list[Manifest]]

PAGE: Final = (ROOT / "docs" / "network-policies.md").read_text(encoding="utf-8")
ROLES: Final = ("certificates", "scheduler", "monitor", "driver", "network_policies", "webhook", "controller")
SYSTEM: Final = "gpu-scheduler-system"

CASES: Final[dict[str, dict[str, object]]] = {
    "by default": {},
    "with the API server's addresses": {"network_policies_api_server_cidrs": ["10.0.0.0/28", "fd00::/64"]},
    "with empty lists": {"network_policies_scraping_namespaces": [], "network_policies_api_server_ports": []},
    "on other ports": {
        "webhook_port": 10250,
        "webhook_http_port": 10255,
        "network_policies_api_server_ports": [16443],
    },
    # As the command line gives them: text.
    "on the nodes' network and OpenShift, with NVML, in other namespaces": {
        "webhook_host_network": "true",
        "webhook_port": "10260",
        "monitor_source": "nvml",
        "openshift": "true",
        "system_namespace": "gpus",
        "monitor_namespace": "gpu-nodes",
        "network_policies_monitor_namespace": "gpu-nodes",
    },
}
DEFAULT, NARROWED, EMPTY, MOVED, _ = CASES

API_SERVER: Final = "the API server"
PROMETHEUS: Final = "Prometheus, in namespace `monitoring`"
TENANT: Final = "a tenant's pod, in namespace `default`"
OTHER: Final = "a pod of others in our namespace"
INTERNET: Final = "the internet"
DNS: Final = "the cluster's DNS"
PEERS: Final = {
    API_SERVER: Peer("10.0.0.10"),
    PROMETHEUS: Peer("10.244.2.9", "monitoring", {"app.kubernetes.io/name": "prometheus"}),
    TENANT: Peer("10.244.3.4", "default", {"app.kubernetes.io/part-of": "gpu-scheduler"}),
    OTHER: Peer("10.244.4.4", SYSTEM, {"app": "theirs"}),
    INTERNET: Peer("203.0.113.7"),
    DNS: Peer("10.244.2.2", "kube-system", {"k8s-app": "kube-dns"}),
}
PROGRAMS: Final = {
    "scheduler": "Deployment gpu-scheduler",
    "webhook": "Deployment gpu-scheduler-webhook",
    "controller": "Deployment gpu-scheduler-controller",
    "monitor": "DaemonSet gpu-scheduler-monitor",
    "driver": "DaemonSet gpu-scheduler-driver",
    "renewer": "CronJob gpu-scheduler-renewer",
}
UNDECLARED: Final = Port(9999)
# The ports that somebody might be reached at, by their names on the page.
OUTSIDE: Final = {"443": Port(443), "6443": Port(6443), "80": Port(80), "53": Port(53, "UDP"), "53/TCP": Port(53)}

ALL_DEPLOYMENTS: Final = "http of scheduler, webhook and controller"
HTTPS: Final = "https of the webhook"
MONITORS: Final = "http of monitors and drivers"
NOTHING: Final = "nothing"
# Who → what it reaches of ours, by default, and with the API server's addresses.
INWARD: Final = {
    API_SERVER: ({HTTPS, ALL_DEPLOYMENTS}, {HTTPS, ALL_DEPLOYMENTS}),
    PROMETHEUS: ({HTTPS, ALL_DEPLOYMENTS, MONITORS}, {ALL_DEPLOYMENTS, MONITORS}),
    TENANT: ({HTTPS, ALL_DEPLOYMENTS}, set()),
    OTHER: ({HTTPS, ALL_DEPLOYMENTS}, set()),
    INTERNET: ({HTTPS, ALL_DEPLOYMENTS}, set()),
}
TARGETS: Final = {
    HTTPS: {("webhook", "https")},
    ALL_DEPLOYMENTS: {("scheduler", "http"), ("webhook", "http"), ("controller", "http")},
    MONITORS: {("monitor", "http"), ("driver", "http")},
}
API: Final = f"{API_SERVER} at 443 and 6443"
EVERYWHERE: Final = "anything at 443 and 6443"
# Who of ours → what it reaches, by default, and with the API server's addresses.
OUTWARD: Final = {
    "webhook": (set[str](), set[str]()),
    **dict.fromkeys(("scheduler", "controller", "renewer", "monitor", "driver"), ({EVERYWHERE}, {API})),
}


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Return a function that renders a case once."""
    return once_rendered(tmp_path_factory, ROLES, CASES)


def inward(manifests: list[Manifest], peer: Peer) -> set[tuple[str, str]]:
    """Return program and port of what the peer reaches; a port that no container declares is called `undeclared`."""
    pods, policies = pods_of(manifests), policies_of(manifests)
    return {
        (program, port)
        for program, name in PROGRAMS.items()
        for port, number in {**pods[name].ports, "undeclared": UNDECLARED.number}.items()
        if connects(policies, peer, pods[name], Port(number))
    }


def outward(manifests: list[Manifest], program: str) -> set[tuple[str, str]]:
    """Return peer and port of what a program reaches outside, and program and port of what it reaches of ours."""
    pods, policies = pods_of(manifests), policies_of(manifests)
    source = pods[PROGRAMS[program]]
    ours = {
        (other, port)
        for other, name in PROGRAMS.items()
        for port, number in pods[name].ports.items()
        if connects(policies, source, pods[name], Port(number))
    }
    return ours | {
        (peer, name)
        for peer, target in PEERS.items()
        for name, port in OUTSIDE.items()
        if connects(policies, source, target, port)
    }


@pytest.mark.promise("net-1")
@pytest.mark.parametrize("case", [DEFAULT, NARROWED])
@pytest.mark.parametrize("who", INWARD)
def test_exactly_these_ports_of_ours_are_reached(render: Render, who: str, case: str) -> None:
    """Every port of every program and one that no program declares, from each peer."""
    expected = INWARD[who][case == NARROWED]

    assert inward(render(case), PEERS[who]) == {each for name in expected for each in TARGETS[name]}


@pytest.mark.promise("net-2")
@pytest.mark.parametrize("case", [DEFAULT, NARROWED])
@pytest.mark.parametrize("program", OUTWARD)
def test_a_program_of_ours_reaches_nothing_but_the_api_server(render: Render, program: str, case: str) -> None:
    """No DNS, no pod, none of our own; without the API server's addresses its ports are open wherever they are."""
    ports = {"443", "6443"}
    reached = {API: {(API_SERVER, port) for port in ports}}
    reached[EVERYWHERE] = {(peer, port) for peer in PEERS for port in ports}
    expected = OUTWARD[program][case == NARROWED]

    assert outward(render(case), program) == {each for name in expected for each in reached[name]}


@pytest.mark.promise("net-1")
@pytest.mark.parametrize("case", CASES)
def test_every_pod_of_ours_is_denied_what_nothing_allows(render: Render, case: str) -> None:
    """Each Deployment, DaemonSet and CronJob is isolated in both directions, in its own namespace.

    The Jobs and the test's pod of the chart have their case in tests/integration/test_charts.py.
    """
    manifests = render(case)
    pods, policies = pods_of(manifests), policies_of(manifests)

    assert set(pods) == set(PROGRAMS.values())
    for name, pod in pods.items():
        for direction in ("Ingress", "Egress"):
            denying = [each for each in isolating(policies, pod, direction) if len(each["spec"]["policyTypes"]) > 1]
            assert [each["metadata"]["name"] for each in denying] == ["gpu-scheduler-deny"], (name, direction)
            assert not {"ingress", "egress"} & set(denying[0]["spec"])


@pytest.mark.promise("net-3")
@pytest.mark.parametrize("case", CASES)
def test_no_pod_of_others_is_selected(render: Render, case: str) -> None:
    """A namespace of ours may be shared, so no selector is empty: pods without our label keep their network."""
    policies = policies_of(render(case))
    theirs: tuple[dict[str, str], ...] = (
        {},
        {"app": "theirs"},
        {"app.kubernetes.io/component": "webhook"},
        {"k8s-app": "kube-dns"},
    )

    assert policies
    assert [
        (policy["metadata"]["name"], labels)
        for policy in policies
        for labels in theirs
        if selects(policy["spec"]["podSelector"], labels)
    ] == []


@pytest.mark.promise("net-1")
@pytest.mark.parametrize("case", [case for case in CASES if case != EMPTY])
def test_an_input_that_moves_a_port_moves_its_opening(render: Render, case: str) -> None:
    """Ports are opened by the names that containers give them: the API server and Prometheus reach them anywhere."""
    manifests = render(case)

    assert inward(manifests, PEERS[API_SERVER]) == TARGETS[HTTPS] | TARGETS[ALL_DEPLOYMENTS]
    assert inward(manifests, PEERS[PROMETHEUS]) >= TARGETS[ALL_DEPLOYMENTS] | TARGETS[MONITORS]


def test_without_a_namespace_that_scrapes_nobody_reaches_a_monitor_or_driver(render: Render) -> None:
    """An empty list opens nothing; a selector without values would be refused."""
    manifests = render(EMPTY)

    assert [who for who, peer in PEERS.items() if inward(manifests, peer) & TARGETS[MONITORS]] == []


@pytest.mark.promise("net-2")
@pytest.mark.parametrize(("case", "ports"), [(EMPTY, set()), (MOVED, {16443})])
def test_only_the_given_ports_of_the_api_server_are_reached(render: Render, case: str, ports: set[int]) -> None:
    """An empty list opens none: a rule without ports would open all."""
    manifests = render(case)
    pods, policies = pods_of(manifests), policies_of(manifests)
    source = pods[PROGRAMS["scheduler"]]

    reached = {
        number for number in (80, 443, 6443, 16443) if connects(policies, source, PEERS[API_SERVER], Port(number))
    }

    assert reached == ports


def test_the_page_has_the_matrix() -> None:
    """The two tables of docs/network-policies.md are those of this file."""
    of_ours = [f"| {who} | {words(default)} | {words(given)} |" for who, (default, given) in INWARD.items()]
    outside = [f"| {program} | {words(default)} | {words(given)} |" for program, (default, given) in OUTWARD.items()]

    assert re.findall(r"^\| (?!who|what|---|`|the plugin).*$", PAGE.partition("## Narrow it")[0], re.MULTILINE) == [
        *of_ours,
        *outside,
    ]


def words(reached: set[str]) -> str:
    """Return what is reached, in words."""
    return "; ".join(sorted(reached, reverse=True)) or NOTHING


# The evaluator's own rules, with a policy of each shape.
POD: Final = Peer("10.1.0.1", "here", {"app": "a"}, {"web": 8080})
NEAR: Final = Peer("10.1.0.2", "here", {"app": "b"}, {"web": 9090})
FAR: Final = Peer("10.1.0.3", "there", {"app": "b"})
NODE: Final = Peer("10.0.0.5")


def policy(**spec: object) -> Manifest:
    """Return a NetworkPolicy in POD's namespace."""
    return {
        "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "here"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], **spec},
    }


THERE: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "there"}}}
BLOCK: Final = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/24"]}}
# A sentence → policies, source, target, port, and whether the connection is allowed.
RULES: Final[dict[str, tuple[list[Manifest], Peer, Peer, Port, bool]]] = {
    "a policy for egress alone leaves ingress open": ([policy(policyTypes=["Egress"])], FAR, POD, Port(1), True),
    "policies add up": ([policy(), policy(ingress=[{"from": [THERE]}])], FAR, POD, Port(1), True),
    "a port has the name that its own pod gives it": (
        [policy(ingress=[{"ports": [{"port": "web"}]}])],
        FAR,
        POD,
        Port(8080),
        True,
    ),
    "selectors mean pods only": (
        [policy(ingress=[{"from": [{"namespaceSelector": {}}]}])],
        NODE,
        POD,
        Port(1),
        False,
    ),
    "an ipBlock means addresses": ([policy(ingress=[{"from": [BLOCK]}])], NODE, POD, Port(1), True),
    "peers and ports must both hold": (
        [policy(ingress=[{"from": [THERE], "ports": [{"port": 2}]}])],
        FAR,
        POD,
        Port(1),
        False,
    ),
    "the source's policies count too": (
        [policy(policyTypes=["Egress"]), policy(policyTypes=["Ingress"], ingress=[{}])],
        NEAR,
        POD,
        Port(1),
        False,
    ),
}


@pytest.mark.parametrize(("policies", "source", "target", "port", "allowed"), RULES.values(), ids=RULES)
def test_policies_mean_what_kubernetes_says(
    policies: list[Manifest],
    source: Peer,
    target: Peer,
    port: Port,
    allowed: bool,  # noqa: FBT001 - a row
) -> None:
    """The evaluator follows the rules of kubernetes.io."""
    assert connects(policies, source, target, port) is allowed
