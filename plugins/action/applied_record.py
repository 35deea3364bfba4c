"""Records which objects a role applied, prunes those that it no longer applies, and removes them all again.

It runs kubectl on this host, where the play runs: a module with the Python client of Kubernetes takes a second for
each role, this takes a tenth of it where nothing changed.
"""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ansible.errors import AnsibleActionFail  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]  # likewise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Json = dict[str, Any]

KINDS: Final = (
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "CronJob",
    "Job",
    "StatefulSet",
    "Deployment",
    "DaemonSet",
    "Pod",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "AlertmanagerConfig",
    "PrometheusRule",
    "ServiceMonitor",
    "PodMonitor",
    "Service",
    "Certificate",
    "Issuer",
    "Lease",
    "ConfigMap",
    "Secret",
    "ResourceQuota",
    "DeviceClass",
    "RoleBinding",
    "ClusterRoleBinding",
    "Role",
    "ClusterRole",
    "ServiceAccount",
    "CustomResourceDefinition",
    "Namespace",
)
"""Every kind that a role applies, in the order of removal; of no other kind anything is deleted."""
UNPRUNED_KINDS: Final = frozenset({"CustomResourceDefinition", "Namespace"})
UNPRUNED_SECRETS: Final = frozenset({"gpu-scheduler-webhook-ca", "gpu-scheduler-webhook-tls"})
"""Pruning leaves these: users' objects and the trust in the webhook would go with them."""

MANAGER: Final = "gpu-scheduler-ansible"
RBAC: Final = "rbac.authorization.k8s.io/v1"
LISTING: Final = "gpu-scheduler-removal"
"""Role and RoleBinding by which a removal lists what is in a namespace of ours, before it deletes that."""
ALLOWED_WITHIN: Final = 10
"""Seconds."""
PART_OF: Final = "app.kubernetes.io/part-of"
PRODUCT: Final = "gpu-scheduler"
LABELS: Final = {
    "app.kubernetes.io/name": PRODUCT,
    "app.kubernetes.io/component": "record",
    PART_OF: PRODUCT,
    "app.kubernetes.io/managed-by": "ansible",
}
# Objects that a cluster itself makes in every namespace; those of OpenShift are among them.
OF_EVERY_NAMESPACE: Final = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "openshift-service-ca.crt"),
        ("ServiceAccount", "default"),
        ("ServiceAccount", "builder"),
        ("ServiceAccount", "deployer"),
    }
)
MOST_NAMED: Final = 5
# More objects of one collection than these are read by a list, where the collection has no more than that.
FEW: Final = 2
LISTED: Final = 200
PARALLEL: Final = 4
PAUSE: Final = 0.5
CALL_TIMEOUT: Final = 60


class ClusterError(Exception):
    """The API server refused or did not answer; the text is one sentence."""


class Reference(NamedTuple):
    """What identifies an object."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Reference:
        """Return the reference of an object or of a definition."""
        metadata = body["metadata"]
        return cls(
            str(body["apiVersion"]), str(body["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"])
        )

    @property
    def where(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def path(self) -> str:
        """The object's path at the API server."""
        root = "/api" if "/" not in self.api_version else "/apis"
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        plural = self.kind.lower()
        plural = f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}{'es' if plural.endswith('s') else 's'}"
        return f"{root}/{self.api_version}{within}/{plural}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.where}"


def in_order(references: Iterable[Reference]) -> list[Reference]:
    """Return the references in the order of removal."""
    return sorted(references, key=lambda each: (KINDS.index(each.kind), each))


class Cluster:
    """The API server that kubectl leads to."""

    def __init__(self, kubectl: list[str], *, check: bool = False) -> None:
        """`kubectl` is the program with its options; with `check` nothing is granted."""
        self._kubectl = kubectl
        self._check = check

    def run(self, *words: str, text: str = "") -> str:
        """Return kubectl's output; raise ClusterError where it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - the command is the caller's kubectl
                [*self._kubectl, *words], input=text, capture_output=True, text=True, timeout=CALL_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"the API server gave no answer within {CALL_TIMEOUT} s") from None
        except OSError as error:
            raise ClusterError(f"cannot run {self._kubectl[0]}: {error.strerror}") from error
        if done.returncode:
            raise ClusterError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "kubectl failed")
        return done.stdout

    def get(self, path: str) -> Json | None:
        """Return the object at this path; None where there is none, or no such kind."""
        try:
            found: Json = json.loads(self.run("get", "--raw", path))
        except ClusterError as error:
            if "(NotFound)" in str(error):
                return None
            raise
        return found

    def get_all(self, references: Iterable[Reference]) -> dict[Reference, Json]:
        """Return the objects that exist, in the order of the references."""
        collections: dict[str, list[Reference]] = {}
        for reference in references:
            collections.setdefault(reference.path.rpartition("/")[0], []).append(reference)
        with ThreadPoolExecutor(PARALLEL) as pool:
            found = pool.map(lambda item: self._get_of(*item), collections.items())
            return {reference: body for bodies in found for reference, body in bodies}

    def _list(self, collection: str) -> Json | None:
        """Return a list of this collection; None if there is none, or if the user may read only single objects."""
        try:
            return self.get(f"{collection}?limit={LISTED}")
        except ClusterError as error:
            if "(Forbidden)" not in str(error):
                raise
            return None

    def _get_of(self, collection: str, references: list[Reference]) -> list[tuple[Reference, Json]]:
        """Return those objects of one collection that exist: a few by their names, many by one list."""
        listed = self._list(collection) if len(references) > FEW else None
        if listed and not listed["metadata"].get("continue"):
            bodies = {body["metadata"]["name"]: body for body in listed["items"]}
        else:
            bodies = {each.name: self.get(each.path) for each in references}
        # A list leaves out what each of its items is.
        of_kind = [(each, bodies.get(each.name)) for each in references]
        return [(each, {"apiVersion": each.api_version, "kind": each.kind, **body}) for each, body in of_kind if body]

    def delete(self, reference: Reference, uid: str) -> bool:
        """Delete the object where it still has this uid; return whether it is gone."""
        # What a workload runs must have ended before its rights go.
        policy = "Foreground" if reference.api_version in {"apps/v1", "batch/v1"} else "Background"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            answer = self.run(
                "delete", "--raw", reference.path, "-f", "-", text=json.dumps({**options, "propagationPolicy": policy})
            )
        except ClusterError as error:
            if "(NotFound)" in str(error) or "(Conflict)" in str(error):
                return True
            raise
        return bool(json.loads(answer).get("kind") == "Status")

    def write(self, body: Json) -> None:
        """Apply an object as ours."""
        options = ("--server-side", "--force-conflicts", f"--field-manager={MANAGER}", "--validate=false")
        self.run("apply", *options, "-f", "-", text=json.dumps(body))

    def contents(self, namespace: str) -> list[Json]:
        """Return every object of a namespace that can be listed and deleted, but for its events."""
        kinds = self.run("api-resources", "--namespaced", "--verbs=list,delete", "--output=name").split()
        asked = ",".join(kind for kind in kinds if kind.partition(".")[0] != "events")
        words = ("get", asked, f"--namespace={namespace}", "--output=json", "--show-managed-fields")
        try:
            listed = self.run(*words)
        except ClusterError as error:
            if self._check or "(Forbidden)" not in str(error):
                raise
            listed = self._run_granted(namespace, *words)
        items: list[Json] = json.loads(listed)["items"]
        return items

    def _run_granted(self, namespace: str, *words: str) -> str:
        """Return kubectl's output; meanwhile its user may list everything in the namespace."""
        user = json.loads(self.run("auth", "whoami", "--output=json"))["status"]["userInfo"]["username"]
        metadata = {"name": LISTING, "namespace": namespace, "labels": LABELS}
        role = {"apiVersion": RBAC, "kind": "Role", "metadata": metadata}
        binding = {"apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata}
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LISTING}
        try:
            self.write({**role, "rules": rules})
            self.write({**binding, "subjects": [subject], "roleRef": reference})
            return self._run_when_allowed(*words)
        finally:
            # The namespace may stay, because of objects of others.
            options = (f"--namespace={namespace}", "--ignore-not-found", "--wait=false")
            self.run("delete", "role,rolebinding", LISTING, *options)

    def _run_when_allowed(self, *words: str) -> str:
        """Return kubectl's output. An API server reads a new grant within seconds."""
        deadline = time.monotonic() + ALLOWED_WITHIN
        while True:
            try:
                return self.run(*words)
            except ClusterError as error:
                if "(Forbidden)" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE)


def managers_of(body: Json) -> set[str]:
    """Return the field managers of an object."""
    return {str(entry.get("manager", "")) for entry in body["metadata"].get("managedFields", [])}


def is_ours(body: Json) -> bool:
    """Whether the object carries our label or our field manager."""
    return body["metadata"].get("labels", {}).get(PART_OF) == PRODUCT or MANAGER in managers_of(body)


def is_kept(reference: Reference) -> bool:
    """Whether pruning leaves the object."""
    return reference.kind in UNPRUNED_KINDS or (reference.kind == "Secret" and reference.name in UNPRUNED_SECRETS)


def foreign_objects(contents: list[Json]) -> list[str]:
    """Return the objects of a namespace that neither we nor the cluster made, in words."""
    uids = {body["metadata"]["uid"] for body in contents}

    def belongs(body: Json) -> bool:
        metadata, kind = body["metadata"], body["kind"]
        return (
            is_ours(body)
            or (kind, metadata["name"]) in OF_EVERY_NAMESPACE
            # Judged by its owner.
            or any(owner["uid"] in uids for owner in metadata.get("ownerReferences", []))
            or (kind == "Lease" and any(manager.startswith(PRODUCT) for manager in managers_of(body)))
            or (kind == "RoleBinding" and metadata["name"].startswith("system:"))
            or (kind == "Secret" and "kubernetes.io/service-account.name" in metadata.get("annotations", {}))
        )

    return sorted(f"{body['kind']} {body['metadata']['name']}" for body in contents if not belongs(body))


def few(words: list[str]) -> str:
    """Return the first words, and how many more there are."""
    more = len(words) - MOST_NAMED
    return ", ".join(words[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def applied_objects(results: Any) -> Iterator[tuple[Reference, str]]:
    """Yield reference and uid of each object in the registered results of kubernetes.core.k8s."""
    if isinstance(results, list):
        for each in results:
            yield from applied_objects(each)
    elif isinstance(results, dict):
        if "apiVersion" in results and "metadata" in results:
            yield Reference.of(results), str(results["metadata"].get("uid", ""))
        else:
            for key in ("result", "results"):
                yield from applied_objects(results.get(key))


class Record:
    """The ConfigMap that lists what a role applied, a line for each object."""

    def __init__(self, cluster: Cluster, role: str, namespace: str) -> None:
        """Read it."""
        self._cluster = cluster
        self.reference = Reference("v1", "ConfigMap", namespace, f"gpu-scheduler-applied-{role.replace('_', '-')}")
        self._stored = cluster.get(self.reference.path)
        text = (self._stored or {}).get("data", {}).get("objects", "")
        self.objects = dict(self._entries(text))

    def _entries(self, text: str) -> Iterator[tuple[Reference, str]]:
        for line in text.splitlines():
            words = line.split()
            if len(words) != 4 or words[1] not in KINDS:  # noqa: PLR2004 - apiVersion, kind, name, uid
                raise ClusterError(
                    f"cannot read ConfigMap {self.reference.where}: the line {line[:100]!r} is not `apiVersion kind"
                    " namespace/name uid` (example: `v1 Service gpu-scheduler-system/gpu-scheduler 0b1f…`); "
                    "delete the ConfigMap, and the next run writes it anew"
                )
            namespace, _, name = words[2].rpartition("/")
            yield Reference(words[0], words[1], namespace, name), words[3]

    @staticmethod
    def text_of(objects: Mapping[Reference, str]) -> str:
        """Return the lines of the record."""
        return "".join(f"{each.api_version} {each.kind} {each.where} {objects[each]}\n" for each in in_order(objects))

    def write(self, objects: Mapping[Reference, str]) -> None:
        """Store these objects, or delete the record where there are none."""
        if not objects:
            self.delete()
            return
        metadata = {"name": self.reference.name, "namespace": self.reference.namespace, "labels": LABELS}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self._cluster.write({**body, "data": {"objects": self.text_of(objects)}})

    @property
    def exists(self) -> bool:
        """Whether it was there when it was read."""
        return self._stored is not None

    def delete(self) -> None:
        """Delete it."""
        if self._stored:
            self._cluster.delete(self.reference, self._stored["metadata"]["uid"])


def prune(record: Record, cluster: Cluster, applied: dict[Reference, str], *, check: bool) -> Json:
    """Record what was applied, and delete what was recorded before and is no longer applied."""
    unknown = [each for each in applied if each.kind not in KINDS]
    if unknown:
        raise ClusterError(f"cannot record {unknown[0]}: its kind has no place in KINDS of applied_record.py")
    former = record.objects
    kept = {each: uid for each, uid in former.items() if each not in applied and is_kept(each)}
    stale = {each: uid for each, uid in former.items() if each not in applied and each not in kept}
    wanted = {**applied, **kept}
    result: Json = {"changed": wanted != former, "deleted": [], "left": []}
    if not result["changed"]:
        return result
    if stale and not check:
        # An interrupted run forgets nothing that it has applied.
        record.write({**former, **applied})
    found = cluster.get_all(stale)
    for reference in in_order(found):
        body = found[reference]
        if body["metadata"]["uid"] != stale[reference] or not is_ours(body):
            result["left"].append(f"{reference}: another object of that name, which this role did not apply")
            continue
        if not check:
            cluster.delete(reference, stale[reference])
        result["deleted"].append(str(reference))
    if not check:
        record.write(wanted)
    result["diff"] = {
        "before_header": str(record.reference),
        "after_header": str(record.reference),
        "before": record.text_of(former),
        "after": record.text_of(wanted),
    }
    return result


def what_holds(cluster: Cluster, reference: Reference) -> str:
    """Say what holds an object that is being deleted."""
    body = cluster.get(reference.path) or {"metadata": {}}
    metadata = body["metadata"]
    reasons = [f"finalizers {', '.join(metadata['finalizers'])}"] if metadata.get("finalizers") else []
    reasons += [
        condition["message"]
        for condition in body.get("status", {}).get("conditions", [])
        if condition.get("message") and condition["type"].endswith(("Remaining", "Failure", "Terminating"))
    ]
    if reference.kind == "CustomResourceDefinition":
        spec = body.get("spec", {"group": "", "names": {"plural": ""}, "versions": [{"name": "v1"}]})
        version = spec["versions"][0]["name"]
        items = (cluster.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}") or {}).get("items", [])
        held = [
            f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
            f" ({', '.join(item['metadata']['finalizers'])})"
            for item in items
            if item["metadata"].get("finalizers")
        ]
        reasons += [f"finalizers of {few(held)}"] if held else []
    since = metadata.get("deletionTimestamp", "now")
    return f"{reference} is being deleted since {since}: {'; '.join(reasons) or 'nothing says why'}"


def wait_until_gone(cluster: Cluster, references: list[Reference], deadline: float, seconds: int) -> None:
    """Wait until none of the objects is there; raise ClusterError with what holds the others."""
    while references:
        references = list(cluster.get_all(references))
        if references and time.monotonic() > deadline:
            raise ClusterError(
                f"not all is gone after {seconds} s. {'. '.join(what_holds(cluster, each) for each in references)}. "
                "Whoever set a finalizer removes it; where its controller is gone for good, edit it out of the object "
                "(kubectl edit). Then run this again"
            )
        if references:
            time.sleep(PAUSE)


def remove(record: Record, cluster: Cluster, given: Json, *, check: bool) -> Json:
    """Delete what the role applied, kind by kind, and wait until it is gone."""
    named = {Reference.of(body) for body in given["named"]}
    listed = {Reference.of(body) for body in given["objects"]} | named | set(record.objects)
    chosen = [
        each
        for each in in_order(listed)
        if each.kind not in given["spared_kinds"] and (not given["only_kinds"] or each.kind in given["only_kinds"])
    ]
    result: Json = {"changed": False, "deleted": [], "left": []}
    deadline = time.monotonic() + given["wait_timeout"]
    for kind in dict.fromkeys(each.kind for each in chosen):
        going = []
        for reference, body in cluster.get_all([each for each in chosen if each.kind == kind]).items():
            reason = "" if reference in named else why_left(cluster, reference, body)
            if reason:
                result["left"].append(f"{reference}: {reason}")
                continue
            ends = "deletionTimestamp" in body["metadata"]
            if not ends:
                result["deleted"].append(str(reference))
            if not check and (ends or not cluster.delete(reference, body["metadata"]["uid"])):
                going.append(reference)
        wait_until_gone(cluster, going, deadline, given["wait_timeout"])
    if record.exists and not given["only_kinds"]:
        result["deleted"].append(str(record.reference))
        if not check:
            record.delete()
    result["changed"] = bool(result["deleted"])
    return result


def why_left(cluster: Cluster, reference: Reference, body: Json) -> str:
    """Say why an object stays; empty for one that goes."""
    if not is_ours(body):
        return f"it has neither label {PART_OF}={PRODUCT} nor field manager {MANAGER}: another made it"
    if reference.kind != "Namespace" or "deletionTimestamp" in body["metadata"]:
        return ""
    try:
        others = foreign_objects(cluster.contents(reference.name))
    except ClusterError as error:
        return f"what is in it cannot be listed: {error}"
    return f"it has objects of others: {few(others)}; delete or move them, and run this again" if others else ""


ARGUMENTS: Final = {
    "role": {"type": "str", "required": True},
    "namespace": {"type": "str", "required": True},
    "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "applied": {"type": "list", "elements": "raw", "default": []},
    "objects": {"type": "list", "elements": "dict", "default": []},
    "named": {"type": "list", "elements": "dict", "default": []},
    "only_kinds": {"type": "list", "elements": "str", "default": []},
    "spared_kinds": {"type": "list", "elements": "str", "default": []},
    "wait_timeout": {"type": "int", "default": 120},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # its base is untyped
    """Records, prunes or removes what a role applied."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Return what was deleted, what was left, and whether anything changed."""
        result: Json = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        check = bool(self._task.check_mode)
        cluster = Cluster(list(given["kubectl"]), check=check)
        try:
            record = Record(cluster, given["role"], given["namespace"])
            if given["state"] == "absent":
                result |= remove(record, cluster, given, check=check)
            else:
                result |= prune(record, cluster, dict(applied_objects(given["applied"])), check=check)
        except ClusterError as error:
            what = "remove" if given["state"] == "absent" else "record"
            raise AnsibleActionFail(f"Cannot {what} what role {given['role']} applied: {error}") from error
        # Whoever reads the output sees which objects went, in check mode which would go.
        if result["deleted"] or result["left"]:
            result["_ansible_verbose_always"] = True
        return result
