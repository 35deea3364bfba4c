"""The objects of workload claims: nodes whose GPUs a driver publishes in ResourceSlices, and pods with a claim each.

Our scheduler creates the claims of its pods. The claims of kube-scheduler's pods have the same spec, and a client
creates them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.cluster_objects import GPUS_PER_NODE, Assignment, MappedPods, node_name
from gpu_scheduler.core.pods.claim_sets import CLAIM_ENTRIES, claim_sets
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from tests import objects as shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.cluster_objects import MappedPod, Object

API: Final = "/apis/resource.k8s.io/v1"
DRIVER: Final = "gpu.nvidia.com"
_ENTRY: Final = CLAIM_ENTRIES[0]
_REQUEST: Final = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
_SPEC: Final = {"devices": {"requests": [{"name": "gpus-0", "exactly": _REQUEST}]}}


@dataclass(frozen=True)
class ClaimedPods(MappedPods):
    """Mapped pods whose containers get the GPU of their line by a ResourceClaim."""

    def assignment(self, member: MappedPod) -> Assignment:
        """Return what the pod is given: with claims, our scheduler reports a UUID."""
        node, device = self.place(member)
        return Assignment(node, node, (_uuid(int(node.rpartition("-")[2]), device),))

    def body(self, member: MappedPod, scheduler: str, *, pinned: bool = False, admitted: bool = True) -> Object:
        """Return the pod as the webhook leaves it. If `pinned`, it names a claim that a user creates."""
        body = super().body(member, scheduler, pinned=pinned, admitted=False)
        if admitted:
            name = _of_user(member) if pinned else self._of_line(member, body)
            (container,) = body["spec"]["containers"]
            container["env"] = shapes.reading()
            container["resources"]["claims"] = [{"name": _ENTRY}]
            body["spec"]["resourceClaims"] = [{"name": _ENTRY, "resourceClaimName": name}]
        return body

    def device_requests(self) -> Iterator[tuple[str, Object]]:
        """Yield the class of the GPUs, and a slice for each node, with the paths to POST them to."""
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        yield f"{API}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}}
        for number in range(self.nodes):
            yield f"{API}/resourceslices", slice_of(number)

    def claim_requests(self) -> Iterator[tuple[str, Object]]:
        """Yield the claim of each pod of kube-scheduler, with the path to POST it to."""
        for member in self.members():
            path = f"{API}/namespaces/{self.namespace(member)}/resourceclaims"
            yield path, {"metadata": {"name": _of_user(member)}, "spec": _SPEC}

    def allocated_claim(self, member: MappedPod, uid: str) -> Object:
        """Return the claim of our pod with this uid, as our scheduler has allocated it."""
        body = self.body(member, "gpu-scheduler")
        node, device = self.place(member)
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        result = {"request": "gpus-0", "driver": DRIVER, "pool": node, "device": f"gpu-{device}"}
        return {
            "metadata": {
                "name": body["spec"]["resourceClaims"][0]["resourceClaimName"],
                "namespace": self.namespace(member),
                "finalizers": ["resource.kubernetes.io/delete-protection"],
                "ownerReferences": body["metadata"]["ownerReferences"],
            },
            "spec": _SPEC,
            "status": {
                "allocation": {
                    "devices": {"results": [result]},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                },
                "reservedFor": [{"resource": "pods", "name": member.name, "uid": uid}],
            },
        }

    def misallocated(self, claims: Iterable[Any], *, devices: bool) -> Iterator[str]:
        """Yield a sentence for each fault of the claims. All have one spec, whoever creates them.

        `devices`: each must be allocated the GPU of its pod's line. Otherwise any GPU of the pod's node is right.
        """
        nodes = {member.name: self.place(member) for member in self.members()}
        given: Counter[tuple[str, str]] = Counter()
        pods: Counter[str] = Counter()
        for claim in claims:
            if claim["spec"] != _SPEC:
                yield f"claim {claim['metadata']['name']} has another spec: {claim['spec']}"
            status = claim.get("status", {})
            found = [(each["pool"], each["device"]) for each in _results(status)]
            consumers = [each["name"] for each in status.get("reservedFor", ())]
            given.update(found)
            pods.update(consumers)
            for pod in consumers:
                node, device = nodes[pod]
                right = [(node, f"gpu-{device}")] if devices else [(node, name) for _, name in found[:1]]
                if found != right:
                    what = ", ".join(map("/".join, found)) or "nothing"
                    yield f"the claim of {pod} is allocated {what}, and its line is GPU {device} of {node}"
        if pods != Counter(nodes.keys()):
            yield f"claims are reserved for {len(pods)} of {self.pods} pods, {pods.total()} times"
        twice = ((place, count) for place, count in given.items() if count > 1)
        yield from (f"{device} of {node} is allocated {count} times" for (node, device), count in twice)

    def _of_line(self, member: MappedPod, body: Object) -> str:
        """Return the name that the webhook gives the claim of the pod's line."""
        lines = parse_placement_map(body["metadata"]["annotations"][shapes.MAP])
        slot = lines.get(member.number)
        assert slot is not None
        (owner,) = body["metadata"]["ownerReferences"]
        (claim,) = claim_sets(lines, slot, self.namespace(member), owner["uid"])
        return claim.name


def slice_of(number: int) -> Object:
    """Return the slice that NVIDIA's driver publishes for the node with this number."""
    name = node_name(number)
    devices = [
        {
            "name": f"gpu-{device}",
            "attributes": {
                "uuid": {"string": _uuid(number, device)},
                "productName": {"string": "NVIDIA A100-SXM4-80GB"},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{device + 1:02x}:00.0"},
            },
            "capacity": {"memory": {"value": "81920Mi"}},
        }
        for device in range(GPUS_PER_NODE)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-{DRIVER}"}, "spec": spec}


def _uuid(number: int, device: int) -> str:
    return shapes.gpu(number * GPUS_PER_NODE + device)


def _of_user(member: MappedPod) -> str:
    return f"gpu-of-{member.name}"


def _results(status: Any) -> Any:
    return status.get("allocation", {}).get("devices", {}).get("results", ())
