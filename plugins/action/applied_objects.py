"""Applies what a role has: one task, by kubernetes.core.k8s, with its record, and with a report where it fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml
from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]  # Ansible ships no types

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MANAGER: Final = "gpu-scheduler-ansible"
# The module compares an object after its wait with the one before: pods that become ready meanwhile are no change.
HIDDEN: Final = [
    "status",
    "metadata.managedFields",
    "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]",
]
SECRET: Final = ("data", "stringData")


def plain(body: Json) -> Json:
    """Return the object without Ansible's marks."""
    copied: Json = json.loads(json.dumps(body))
    return copied


def objects_of(definition: Iterable[Any]) -> list[Json]:
    """Return the objects that are given as dictionaries or as YAML text."""
    # Plain values: YAML refuses the ones that Ansible has marked with their origin.
    read = [list(yaml.load_all(str(each), LOADER)) if isinstance(each, str) else [plain(each)] for each in definition]
    return [body for bodies in read for body in bodies if body]


def created(body: Json) -> Json:
    """Return what a run would do with an object in a namespace that is missing, as kubernetes.core.k8s says it."""
    shown = {key: value for key, value in body.items() if body["kind"] != "Secret" or key not in SECRET}
    text = yaml.safe_dump(shown, sort_keys=False, default_flow_style=False)
    return {"changed": True, "method": "apply", "diff": {"before": "", "after": text}, "result": shown}


def identity(part: Json) -> Json:
    """Return what a record needs of an object that was applied."""
    found, metadata = part["result"], part["result"]["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": kept}


ARGUMENTS: Final = {
    "role": {"type": "str"},
    "namespace": {"type": "str", "required": True},
    "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
    "kubeconfig": {"type": "str"},
    "context": {"type": "str"},
    "definition": {"type": "list", "elements": "raw", "required": True},
    "server_side": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int"},
    "wait_condition": {"type": "dict"},
    "applied": {"type": "list", "elements": "raw", "default": []},
    "failure": {"type": "str"},
    "subjects": {"type": "list", "elements": "dict", "default": []},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # its base is untyped
    """Runs the modules in their order; the first that fails ends the task."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: Json | None = None) -> Json:
        """Return each object's result, what was deleted and left, and whether anything changed."""
        result: Json = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        kubectl, check = {"kubectl": given["kubectl"]}, bool(self._task.check_mode)

        def called(module: str, **arguments: Any) -> Json:
            given_ones = {key: value for key, value in arguments.items() if value is not None}
            found: Json = self._execute_module(module_name=module, module_args=given_ones, task_vars=task_vars)
            return found

        def failed(answer: Json) -> Json:
            if not given["subjects"]:
                return result | answer
            failure = f"{given['failure']}: {answer.get('msg', 'no reason was given')}"
            return result | called("failure_report", failure=failure, subjects=given["subjects"], **kubectl)

        bodies = objects_of(given["definition"])
        missing: set[str] = set()
        if check:
            # The API server refuses a dry run in a namespace that does not exist.
            # All are listed, because a deployer may get only ours.
            answer = called("cluster_objects", objects=[{"kind": "Namespace"}], **kubectl)
            if answer.get("failed"):
                return failed(answer)
            (found,) = answer["found"]
            namespaces = {body["metadata"].get("namespace", "") for body in bodies} - {""}
            missing = namespaces - {each["metadata"]["name"] for each in found}
        parts = [created(body) for body in bodies if body["metadata"].get("namespace", "") in missing]
        sent = [body for body in bodies if body["metadata"].get("namespace", "") not in missing]
        if sent:
            answer = called(
                "kubernetes.core.k8s",
                kubeconfig=given["kubeconfig"],
                context=given["context"],
                resource_definition=sent,
                apply=True,
                server_side_apply={"field_manager": MANAGER, "force_conflicts": True} if given["server_side"] else None,
                wait=given["wait_timeout"] is not None,
                wait_sleep=1,
                wait_timeout=given["wait_timeout"],
                wait_condition=given["wait_condition"],
                hidden_fields=HIDDEN,
            )
            if answer.get("failed"):
                return failed(answer)
            alone = {key: answer[key] for key in ("changed", "method", "diff", "result") if key in answer}
            parts = [*(answer["result"]["results"] if len(sent) > 1 else [alone]), *parts]
        result |= {"changed": any(part["changed"] for part in parts), "result": {"results": parts}}
        if not given["role"]:
            return result
        answer = called(
            "applied_record",
            role=given["role"],
            namespace=given["namespace"],
            applied=[*given["applied"], *map(identity, parts)],
            **kubectl,
        )
        if answer.get("failed"):
            return failed(answer)
        told = {key: answer[key] for key in ("deleted", "left", "diff") if key in answer}
        return result | told | {"changed": result["changed"] or answer["changed"]}
