"""The API server calls /mutate-dra and /validate-dra, and accepts the pods with their ResourceClaims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.integration.namespace import Namespace, debugged
from tests.integration.webhook_process import CONFIGURATIONS, UNREVIEWED
from tests.messages import quotes
from tests.objects import reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.control_plane import ControlPlane
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.objects import Object

MAP: Final = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
LABEL: Final = "agentaflow.gpu/isolation"
CLAIM: Final = "gpu-scheduler-0"
NAME: Final = "dra"


@pytest.fixture(scope="module")
def isolating(plane: ControlPlane, registered: RegisteredWebhook) -> Iterator[Namespace]:
    """A namespace whose label demands claims, with the webhooks' entries for it."""
    for kind, more in (("mutating", {"reinvocationPolicy": "IfNeeded"}), ("validating", {})):
        path = f"{'mutate' if kind == 'mutating' else 'validate'}-dra"
        webhook = registered.webhook(path, namespaceSelector={"matchLabels": {LABEL: "dra"}}, **more)
        body = {"metadata": {"name": NAME}, "webhooks": [webhook]}
        plane.kube.create(f"{CONFIGURATIONS}/{kind}webhookconfigurations", body)
    # The other entries leave this namespace out: they would write literal variables first.
    labels = {LABEL.replace("/", "_"): "dra", UNREVIEWED.replace("/", "_"): "true"}
    namespace = Namespace(plane.kube, "isolated", **labels)

    def noticed() -> bool:
        probe = f"{namespace.pods}?dryRun=All"
        return plane.kube.call("POST", probe, objects.pod("probe", "nonsense"))[0] == 400

    eventually("the API server calls the webhook", noticed)
    yield namespace
    namespace.empty()
    for kind in ("mutating", "validating"):
        plane.kube.delete(f"{CONFIGURATIONS}/{kind}webhookconfigurations/{NAME}")


def create(namespace: Namespace, body: Object) -> Object:
    status, answer = namespace.kube.call("POST", namespace.pods, body)
    assert status == 201, answer
    return answer


def replica(number: int, **more: Any) -> Object:
    """Return a pod as the controller of StatefulSet train makes it."""
    labels = {"apps.kubernetes.io/pod-index": str(number)}
    return objects.pod(
        f"train-{number}", MAP, owner=("StatefulSet", "train"), generate_name="train-", labels=labels, **more
    )


def claims_of(pod: Object) -> list[str]:
    return [each["resourceClaimName"] for each in pod["spec"]["resourceClaims"]]


@pytest.mark.promise("isolate-1")
def test_pods_that_share_a_gpu_share_its_claim(isolating: Namespace) -> None:
    """Pods 3 and 4 of the README's map have one claim. Every container uses it and reads its devices by name."""
    containers = [
        {"name": "main", "image": "none", "resources": {"limits": {"cpu": "1"}}},
        {"name": "sidecar", "image": "none"},
    ]
    first = [{"name": "first", "image": "none"}]
    pods = [create(isolating, replica(number, containers=containers, initContainers=first)) for number in range(5)]
    found = [claims_of(pod) for pod in pods]

    assert found[3] == found[4]
    assert len({name for names in found for name in names}) == 4
    for pod in pods:
        spec = pod["spec"]
        for container in (*spec["containers"], *spec["initContainers"]):
            assert container["env"] == reading()
            assert container["resources"]["claims"] == [{"name": CLAIM}]
        assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1"}


def test_a_pod_whose_index_is_decided_later_has_a_claim_of_its_own(isolating: Namespace) -> None:
    """The API server stores the random name."""
    body = objects.pod("", "0=node1:0\n1=node1:1", generate_name="web-")
    del body["metadata"]["name"]

    one, two = (claims_of(create(isolating, body)) for _ in range(2))

    assert len({*one, *two}) == 2


def test_a_debug_container_reads_what_its_pod_reads(isolating: Namespace) -> None:
    """The API gives an ephemeral container no claims."""
    create(isolating, objects.pod("debugged-0", "0=node1:0"))

    status, pod = debugged(isolating.kube, f"{isolating.pods}/debugged-0")

    assert status == 200, pod
    (debug,) = pod["spec"]["ephemeralContainers"]
    assert (debug["env"], debug["resources"]) == (reading(), {})


REFUSED: dict[str, tuple[Object, tuple[str, ...]]] = {
    "an observer": (
        objects.pod("refused-0", "0=node1:0", annotations={"agentaflow.gpu/observer": "true"}),
        ("Unsupported", "ResourceClaims", "agentaflow.gpu/observer"),
    ),
    "a claim of another author": (
        objects.pod("refused-0", "0=node1:0", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]),
        ("Unsupported", "spec.resourceClaims", "gpu-scheduling-map"),
    ),
    "two claims of another author": (
        objects.pod(
            "refused-0", None, resourceClaims=[{"name": each, "resourceClaimName": "mine"} for each in ("a", "b")]
        ),
        ("Unsupported", "spec.resourceClaims", "one claim"),
    ),
    "a claim that no container uses": (
        objects.pod("refused-0", None, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]),
        ("RequestInvalid", "container", '"gpu"'),
    ),
    "a wrong claim under our entry": (
        objects.pod(
            "refused-0", "0=node1:0", resourceClaims=[{"name": CLAIM, "resourceClaimName": "gpu-scheduler-mine"}]
        ),
        ("RequestInvalid", '"gpu-scheduler-mine"', "spec.resourceClaims"),
    ),
}


@pytest.mark.parametrize(("body", "said"), REFUSED.values(), ids=REFUSED)
def test_what_claims_cannot_give_is_refused(isolating: Namespace, body: Object, said: tuple[str, ...]) -> None:
    """With the scheduler's words."""
    status, answer = isolating.kube.call("POST", isolating.pods, body)

    assert status == (400 if "RequestInvalid" in said else 403)
    quotes(answer["message"], *said)
