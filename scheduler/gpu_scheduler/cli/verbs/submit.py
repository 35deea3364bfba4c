"""The verb submit: creates or changes the GPUWorkloads of a file."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from gpu_scheduler import names
from gpu_scheduler.cli.cluster import namespace_of, reached
from gpu_scheduler.cli.command_line import PATH
from gpu_scheduler.cli.options import FailedError, Output, RefusedInputError, read_duration
from gpu_scheduler.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.cli.verbs.manifests import SubmittedWorkload
    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse

View = dict[str, Any]

SUBMITTER: Final = "gpu-scheduler-cli"
_CREATED, _NOT_FOUND, _CONFLICT = 201, 404, 409
# The API server's message for an unknown field; its HTTP status is then 500.
_UNTYPED: Final = "failed to create typed patch object"
_UNDECLARED: Final = re.compile(r"(\.[^\s:]+): field not declared in schema")
_PAUSE: Final = 0.5
_PLACED: Final = frozenset({"Scheduled", "Running", "Succeeded"})


@click.argument("file", type=PATH, help='YAML of GPUWorkloads; "-" is standard input.')
@click.option("--wait", is_flag=True, help="Wait until all of them are placed.")
@click.option("--timeout", "at_most", metavar="DURATION", help="How long to wait at most.")
async def submit(options: Options, file: str, *, wait: bool = False, at_most: str = "5m") -> int:
    """Create or change the GPUWorkloads of a file.

    Nothing is changed if one is invalid. With --wait, exit code 1 if one fails, cannot be placed by waiting, or is not
    placed in time.
    """
    import asyncio

    from gpu_scheduler.cli.manifests.files import read_text, shown
    from gpu_scheduler.cli.verbs.manifests import read_documents

    seconds = read_duration(at_most, "--timeout")
    documents = await asyncio.to_thread(read_text, file, "example: gpu-scheduler submit my-workload.yaml")
    found = read_documents(documents, shown(file))
    async with reached(options) as api:
        namespaces = [_namespace(document, options, api) for document in found]
        wanted = list(zip(found, namespaces, strict=True))
        if len(wanted) > 1:
            # All or nothing: a dry run of every document first. The API server may still refuse a later write.
            for document, namespace in wanted:
                await _apply(api, document, namespace, trial=True)
        done = [await _apply(api, document, namespace) for document, namespace in wanted]
        if not wait:
            _report([(each, result) for each, result in done], options)
            return 0
        ends = await asyncio.gather(*(_placed(api, document, namespace, seconds) for document, namespace in wanted))
    _report(ends, options)
    return 0


async def _apply(
    api: ApiClient, document: SubmittedWorkload, namespace: str, *, trial: bool = False
) -> tuple[View, str]:
    """Apply one document; return the object after the write, and "created", "configured" or "unchanged".

    A `trial` is a dry run. FailedError if the API server refuses.
    """
    from gpu_scheduler.kube.http.client import APPLY

    before = None if trial else await _version(api, document, namespace)
    query = {"fieldManager": SUBMITTER, "fieldValidation": "Strict", **({"dryRun": "All"} if trial else {})}
    answer = await api.call(
        "PATCH",
        _path(namespace, document.name),
        query=query,
        body=document.sent(namespace),
        content_type=APPLY,
        timeout=10.0,
    )
    if answer.ok:
        after = json.loads(answer.body)
        same = before is not None and after["metadata"].get("resourceVersion") == before
        return after, "created" if answer.status == _CREATED else "unchanged" if same else "configured"
    raise _refused(answer, document, namespace)


async def _version(api: ApiClient, document: SubmittedWorkload, namespace: str) -> str | None:
    """Return the resourceVersion of the workload that is there; None if there is none, or it may not be read."""
    answer = await api.call("GET", _path(namespace, document.name))
    return json.loads(answer.body)["metadata"].get("resourceVersion") if answer.ok else None


def _refused(answer: ApiResponse, document: SubmittedWorkload, namespace: str) -> FailedError:
    message, kind = message_of(answer), FailedError
    if answer.status == _NOT_FOUND and "namespaces" in message:
        remedy = f"create it (example: kubectl create namespace {namespace})"
    elif answer.status == _NOT_FOUND:
        remedy = f"this cluster knows no {names.WORKLOAD_KIND}: install the kind (example: make up ARGS='--tags crds')"
    elif answer.status == _CONFLICT:
        remedy = "leave those fields to whoever manages them, or delete the workload first"
    elif _UNTYPED in message:
        # The API server answers 500, and names the Go types that it could not fill.
        kind, message = RefusedInputError, _unknown_field(message)
        remedy = "correct its name, or leave it out (example: kubectl explain gpuworkload.spec)"
    elif answer.status in {400, 422}:
        kind, remedy = RefusedInputError, "correct it (example: gpu-scheduler generate-template)"
    else:
        remedy = f"see what you may do (example: kubectl auth can-i patch gpuworkloads -n {namespace})"
    return kind(f"cannot submit {document}: {message}; {remedy}")


def _unknown_field(message: str) -> str:
    """Return the part of the API server's message that names the field which the kind does not have."""
    found = _UNDECLARED.search(message)
    return f"{names.WORKLOAD_KIND} has no field {found[1]}" if found else message


async def _placed(api: ApiClient, document: SubmittedWorkload, namespace: str, seconds: float) -> tuple[View, str]:
    """Poll the workload until it has a node and GPUs; return the object, and where it was placed.

    FailedError if it fails, is gone, waits for a reason that no waiting cures, or is not placed within `seconds`.
    """
    import asyncio

    from gpu_scheduler.cli.output import gpus_of

    last: View = {}
    try:
        async with asyncio.timeout(seconds):
            while True:
                answer = await api.call("GET", _path(namespace, document.name))
                if not answer.ok:
                    raise FailedError(f"cannot wait for {document}: {message_of(answer)}; submit it again")
                last = json.loads(answer.body)
                status = last.get("status", {})
                current = status.get("observedGeneration", 0) >= last["metadata"].get("generation", 0)
                if current and status.get("phase") in _PLACED:
                    return last, f"placed on {status.get('node')}: {gpus_of(status.get('devices', []))}"
                if current and status.get("phase") == "Failed":
                    raise FailedError(f"cannot run {document}: {_reason(status)}; see kubectl describe gpuworkload")
                if current and _waits_in_vain(status):
                    raise FailedError(
                        f"cannot place {document}, and waiting does not help: {_reason(status)}; then recreate it "
                        f"(example: kubectl delete gpuworkload -n {namespace} {document.name})"
                    )
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        why = _reason(last.get("status", {}))
        raise FailedError(
            f"cannot wait longer than {seconds:g} s for {document}: it is not placed: {why}; "
            "wait longer (example: --timeout 30m), or see gpu-scheduler nodes"
        ) from None


def _report(done: Sequence[tuple[View, str]], options: Options) -> None:
    from gpu_scheduler.cli.output import Column, Listing, PrintedTable, render

    items = [
        {
            "namespace": each["metadata"]["namespace"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
            "result": result,
        }
        for each, result in done
    ]
    if options.output is Output.TABLE:
        lines = (f"gpuworkload.agentaflow.io/{item['name']} {item['result']}" for item in items)
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
        return
    columns = (
        Column("NAMESPACE", lambda item: item["namespace"]),
        Column("NAME", lambda item: item["name"]),
        Column("RESULT", lambda item: item["result"]),
    )
    table = PrintedTable(columns, items)
    listing = Listing("Submission", items, table, table, lambda item: f"gpuworkload.agentaflow.io/{item['name']}")
    sys.stdout.write(render(listing, options))


def _namespace(document: SubmittedWorkload, options: Options, api: ApiClient) -> str:
    """Return the document's namespace, else the namespace of the options or the context.

    RefusedInputError if the document and the options name different namespaces.
    """
    if document.namespace and options.namespace and document.namespace != options.namespace:
        raise RefusedInputError(
            f"cannot submit {document}: its namespace is {document.namespace}, and -n says {options.namespace}; "
            f"leave one of the two out (example: -n {document.namespace})"
        )
    default = namespace_of(options, api) or api.namespace or "default"
    return document.namespace or default


def _path(namespace: str, name: str) -> str:
    from gpu_scheduler.kube.http.client import segment
    from gpu_scheduler.kube.objects.agentaflow import API

    return f"{API}/namespaces/{segment(namespace)}/gpuworkloads/{segment(name)}"


def message_of(answer: ApiResponse) -> str:
    """Return the API server's HTTP status and message."""
    from gpu_scheduler.kube.http.client import status_message

    return f"HTTP {answer.status}: {status_message(answer)}"


def _waits_in_vain(status: View) -> bool:
    """Whether the workload waits for a reason that only a change of the pod or of the nodes cures."""
    from gpu_scheduler.core.reasons import Reason, is_permanent

    word = status.get("reason")
    return status.get("phase") == "Pending" and word in tuple(Reason) and is_permanent((Reason(word), False))


def _reason(status: View) -> str:
    message, reason = status.get("message"), status.get("reason")
    return str(message or reason or "the controller has not reconciled it yet (gpu-scheduler status)")
