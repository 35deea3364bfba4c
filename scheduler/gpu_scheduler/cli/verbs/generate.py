"""The verbs that write a first version of a text: generate-template, generate-gpu-mapping."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler import names
from gpu_scheduler.cli import live_names
from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.command_line import PATH
from gpu_scheduler.cli.options import FailedError, Output, RefusedInputError, warn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.core.ledger.availability import NodeDevices
    from gpu_scheduler.core.nodes.nodes import Nodes

TEMPLATE: Final = """\
apiVersion: agentaflow.io/v1
kind: GPUWorkload
metadata:
  name: my-workload
spec:
  priority: 0                          # higher goes first, where the strategy is `priority`
  schedulingStrategy: least_utilized   # or best_fit, priority, round_robin; without it, the cluster's
  gpuMemoryRequired: 8192              # MiB that must be free on each GPU
  gpuRequirements:
    gpuCount: 1                        # all of them on one node
    exclusiveAccess: true              # false shares the GPU with others that say so too
    # gpuType: A100                    # part of the GPU's model
  retryPolicy:
    limit: 0                           # how often a pod that failed is made anew
  podTemplate:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: pytorch/pytorch:latest
          command: [python, -c, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"]
"""


@click.argument(
    "file", type=PATH, required=False, metavar="[FILE]", help="Where to write it; without it, to standard output."
)
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def generate_template(file: str | None = None, *, force: bool = False) -> None:
    """Write a GPUWorkload to start from."""
    if file is None:
        sys.stdout.write(TEMPLATE)
        return
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(TEMPLATE)
    except OSError as error:
        remedy = "write over it with --force" if isinstance(error, FileExistsError) else "choose another place"
        raise RefusedInputError(
            f"cannot write {file}: {error.strerror}; {remedy} (example: gpu-scheduler generate-template new.yaml)"
        ) from error


@click.option("--per-pod", type=click.IntRange(min=1), metavar="N", help="GPUs of each pod, all on one node.")
@click.option(
    "--nodes",
    metavar="NODE,…",
    help="Only these nodes, by name or alias, in this order.",
    shell_complete=live_names.nodes_of_list,
)
@click.option("--free", is_flag=True, help="Only GPUs that a pod could have now.")
@click.option(
    "--indices", type=click.IntRange(min=0), metavar="COUNT", help="So many lines; without it, as many as fit."
)
async def generate_gpu_mapping(
    options: Options, *, per_pod: int = 1, nodes: str | None = None, free: bool = False, indices: int = 0
) -> int:
    """Write a gpu-scheduling-map of this cluster.

    From the nodes that exist and the GPUs they have that are not unhealthy, for kubectl annotate; with -o yaml, as a
    template's annotation.
    """
    from gpu_scheduler.cli.installation import read_installation
    from gpu_scheduler.cli.snapshot import take_snapshot
    from gpu_scheduler.core.text import number_of

    async with reached(options) as api:
        installation = await read_installation(api, options.system_namespace)
        snapshot = await take_snapshot(api, installation.policy)
    warn((installation.unread.deployment, *snapshot.objects.unread))
    node_devices = list(_chosen(nodes, snapshot.nodes, snapshot.node_devices))
    lines = list(mapping_lines(node_devices, per_pod, free=free))
    if not lines or len(lines) < indices:
        raise FailedError(
            f"cannot make {number_of(indices or 1, 'line')} with {number_of(per_pod, 'free ' * free + 'GPU')} each: "
            f"{_device_counts(node_devices, free=free)}, enough for {len(lines)}; "
            "ask for less, or list the GPUs (example: gpu-scheduler nodes -o wide)"
        )
    sys.stdout.write(_written(lines[: indices or None], options))
    return 0


def mapping_lines(
    node_devices: Sequence[NodeDevices], per_pod: int, *, free: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """List node and devices of each pod, node by node. A node's last devices are left out if too few for a pod."""
    for states in node_devices:
        devices = _devices(states, free=free)
        for start in range(0, len(devices) - per_pod + 1, per_pod):
            yield states.node.name, tuple(devices[start : start + per_pod])


def _devices(states: NodeDevices, *, free: bool) -> list[str]:
    """Return the devices that a map may name: none that is unhealthy, because no pod gets it."""
    from gpu_scheduler.core.nodes.inventory import Health

    known = (state for state in states.devices if state.device is not None)
    return [
        state.name for state in known if (state.available if free else state.reading.health is not Health.UNHEALTHY)
    ]


def _device_counts(node_devices: Sequence[NodeDevices], *, free: bool) -> str:
    counted = [f"{states.node.name} has {len(_devices(states, free=free))}" for states in node_devices]
    return ", ".join(counted) or "there is no node"


def _chosen(wanted: str | None, nodes: Nodes, node_devices: Sequence[NodeDevices]) -> Iterator[NodeDevices]:
    """List the devices of the nodes in `wanted`, or of all nodes if there are none.

    RefusedInputError if a name is unknown or ambiguous.
    """
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.reasons import Reason
    from gpu_scheduler.core.text import quote

    if not wanted:
        yield from node_devices
        return
    by_name = {states.node.name: states for states in node_devices}
    for name in dict.fromkeys(part.strip() for part in wanted.split(",")):
        node = nodes.resolve(name)
        if not isinstance(node, Node):
            first = next(iter(by_name), "node1")
            many = node.reason is Reason.NODE_AMBIGUOUS
            raise RefusedInputError(
                f"cannot use --nodes {quote(wanted)}: {'several nodes have' if many else 'no node has the name or'} "
                f"alias {quote(name)}; the nodes are {', '.join(by_name)} (example: --nodes {first})"
            )
        yield by_name[node.name]


def _written(lines: Sequence[tuple[str, tuple[str, ...]]], options: Options) -> str:
    """Return the map as text, as an annotation (YAML), or as data."""
    from gpu_scheduler.cli.output import Listing, PrintedTable, as_yaml, render
    from gpu_scheduler.core.pods.placement_map import parse_placement_map

    text = "".join(f"{index}={node}:{','.join(devices)}\n" for index, (node, devices) in enumerate(lines))
    parse_placement_map(text)
    match options.output:
        case Output.TABLE | Output.WIDE:
            return text
        case Output.YAML:
            return as_yaml({"metadata": {"annotations": {names.MAP: text}}})
        case _:
            slots = [{"index": index, "node": node, "devices": each} for index, (node, each) in enumerate(lines)]
            items = [{"map": text, "lines": slots}]
            return render(Listing("PlacementMap", items, PrintedTable((), ()), PrintedTable((), ())), options)
