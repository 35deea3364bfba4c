"""Records which objects a role applied, and deletes those that it applied before and no longer applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.kubectl import (  # type: ignore[import-untyped]  # ours: ansible.cfg says where
    Cluster,
    ClusterError,
    Reference,
)
from ansible.module_utils.records import KINDS, Record, in_order, is_ours  # type: ignore[import-untyped]  # likewise

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTATION = """
module: applied_record
short_description: records what a role applied, and deletes what it no longer applies
description:
  - Keeps a ConfigMap C(gpu-scheduler-applied-ROLE), in whose name hyphens stand for underscores, with a line for each
    object that a role applied, and its uid.
  - Deletes what the record has and this run did not apply, where it still has the recorded uid and our label or field
    manager. Namespaces, CustomResourceDefinitions and the webhook's Secrets are never deleted.
  - M(applied_objects) runs it. A role that must see its objects in force before it deletes others runs it itself.
options:
  role: {description: The role, required: true, type: str}
  namespace: {description: The namespace of the record, required: true, type: str}
  kubectl: {description: "The kubectl command, program and options.", type: list, elements: str, default: [kubectl]}
  applied: {description: Results of kubernetes.core.k8s., type: list, elements: raw, required: true}
attributes:
  check_mode:
    support: full
    description: Lists what would be deleted.
  diff_mode:
    support: full
    description: Shows the record before and after.
"""

EXAMPLES = """
- name: Record what was applied, and delete what is no longer applied
  applied_record:
    role: policies
    namespace: gpu-scheduler-system
    applied: ["{{ __policies_guards }}"]
"""

RETURN = """
deleted: {description: "The objects that were deleted or, in check mode, would be.", type: list, returned: always}
left: {description: "The objects that stay although the record names them, and why.", type: list, returned: always}
"""

Json = dict[str, Any]

UNPRUNED_KINDS: Final = frozenset({"CustomResourceDefinition", "Namespace"})
UNPRUNED_SECRETS: Final = frozenset({"gpu-scheduler-webhook-ca", "gpu-scheduler-webhook-tls"})
"""Pruning leaves these: users' objects and the trust in the webhook would go with them."""


def is_kept(reference: Reference) -> bool:
    """Whether pruning leaves the object."""
    return reference.kind in UNPRUNED_KINDS or (reference.kind == "Secret" and reference.name in UNPRUNED_SECRETS)


def applied_objects(results: Any) -> Iterator[tuple[Reference, str]]:
    """Yield reference and uid of each object in the results of kubernetes.core.k8s."""
    if isinstance(results, list):
        for each in results:
            yield from applied_objects(each)
    elif isinstance(results, dict):
        if "apiVersion" in results and "metadata" in results:
            yield Reference.of(results), str(results["metadata"].get("uid", ""))
        else:
            for key in ("result", "results"):
                yield from applied_objects(results.get(key))


def prune(record: Record, cluster: Cluster, applied: dict[Reference, str], *, check: bool) -> Json:
    """Record what was applied, and delete what was recorded before and is no longer applied."""
    unknown = [each for each in applied if each.kind not in KINDS]
    if unknown:
        raise ClusterError(f"cannot record {unknown[0]}: its kind has no place in KINDS of records.py")
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


def main() -> None:
    """Say what was deleted, what was left, and whether anything changed."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "namespace": {"type": "str", "required": True},
            "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
            "applied": {"type": "list", "elements": "raw", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    cluster = Cluster(given["kubectl"])
    try:
        record = Record(cluster, given["role"], given["namespace"])
        applied = dict(applied_objects(given["applied"]))
        module.exit_json(**prune(record, cluster, applied, check=module.check_mode))
    except ClusterError as error:
        module.fail_json(msg=f"Cannot record what role {given['role']} applied: {error}")


if __name__ == "__main__":
    main()
