import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpu_scheduler.cli.options import FailedError, Output, RefusedInputError
from gpu_scheduler.cli.verbs.generate import TEMPLATE, generate_gpu_mapping, generate_template
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from unit_tests.cli.scripted_cluster import Capsys, cluster, device, items, node, pod

ALIASED = node("node2", *map(device, range(2)))
ALIASED["metadata"]["labels"] = {"gpu-node-name": "fast"}
TWIN = node("node3")
TWIN["metadata"]["labels"] = {"gpu-node-name": "twin"}
OTHER = node("node4")
OTHER["metadata"]["labels"] = {"gpu-node-name": "twin"}
NODES = items(node("node10", *map(device, range(3))), ALIASED, TWIN, OTHER)
HELD = items(pod("a-0", "node10", "1"))


async def mapping(tmp_path: Path, capsys: Capsys, **asked: object) -> str:
    """Return what the verb prints."""
    async with cluster(tmp_path, nodes=NODES, pods=HELD) as (_, options):
        assert await generate_gpu_mapping(replace(options, output=asked.pop("output", Output.TABLE)), **asked) == 0  # type: ignore[arg-type]
    return capsys.readouterr().out


MAPS = {
    "a line for each GPU": ({}, "0=node2:0\n1=node2:1\n2=node10:0\n3=node10:1\n4=node10:2\n"),
    "2 GPUs for each pod, all on one node": ({"per_pod": 2}, "0=node2:0,1\n1=node10:0,1\n"),
    "only free GPUs": ({"per_pod": 2, "free": True}, "0=node2:0,1\n1=node10:0,2\n"),
    "only these nodes, in this order, by name or alias": (
        {"nodes": "node10, fast", "per_pod": 2},
        "0=node10:0,1\n1=node2:0,1\n",
    ),
    "2 lines": ({"indices": 2}, "0=node2:0\n1=node2:1\n"),
}


@pytest.mark.parametrize(("asked", "text"), MAPS.values(), ids=MAPS)
async def test_a_map_of_the_nodes_that_exist(
    asked: dict[str, object], text: str, tmp_path: Path, capsys: Capsys
) -> None:
    """The scheduler can parse it."""
    assert await mapping(tmp_path, capsys, **asked) == text
    parse_placement_map(text)


async def test_an_unhealthy_gpu_is_left_out(tmp_path: Path, capsys: Capsys) -> None:
    """No pod gets it. A degraded one is used."""
    sick = node("node1", device(0, health="unhealthy"), device(1, health="degraded"), device(2))
    async with cluster(tmp_path, nodes=items(sick), pods=items(pod("a-0", "node1", "2"))) as (_, options):
        await generate_gpu_mapping(options, nodes="node1")

    assert capsys.readouterr().out == "0=node1:1\n1=node1:2\n"


async def test_a_map_goes_into_a_template(tmp_path: Path, capsys: Capsys) -> None:
    """The YAML is the template's annotation."""
    found = yaml.safe_load(await mapping(tmp_path, capsys, indices=2, output=Output.YAML))

    assert found == {"metadata": {"annotations": {"gpu-scheduling-map": "0=node2:0\n1=node2:1\n"}}}


async def test_a_map_as_data(tmp_path: Path, capsys: Capsys) -> None:
    """JSON has the text and its lines."""
    (found,) = json.loads(await mapping(tmp_path, capsys, indices=1, output=Output.JSON))["items"]

    assert (found["kind"], found["map"]) == ("PlacementMap", "0=node2:0\n")
    assert found["lines"] == [{"index": 0, "node": "node2", "devices": ["0"]}]


IMPOSSIBLE = {
    "more lines than there are GPUs": (
        {"indices": 6},
        FailedError,
        "^cannot make 6 lines with 1 GPU each: node2 has 2, .*, enough for 5; ask for less",
    ),
    "more GPUs than a node has": ({"per_pod": 4}, FailedError, "^cannot make 1 line with 4 GPUs each: "),
    "more free GPUs than a node has": ({"per_pod": 3, "free": True}, FailedError, "3 free GPUs each: .*node10 has 2"),
    "an unknown node": (
        {"nodes": "node1"},
        RefusedInputError,
        '^cannot use --nodes "node1": no node has the name or alias "node1"; the nodes are node2, node3, node4, node10',
    ),
    "an alias of two nodes": ({"nodes": "twin"}, RefusedInputError, 'several nodes have alias "twin"'),
}


@pytest.mark.parametrize(("asked", "kind", "sentence"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_a_map_that_cannot_be_made(
    asked: dict[str, object], kind: type[FailedError], sentence: str, tmp_path: Path, capsys: Capsys
) -> None:
    """The sentence names the GPUs or nodes that exist."""
    with pytest.raises(kind, match=sentence):
        await mapping(tmp_path, capsys, **asked)


async def test_a_cluster_without_nodes_has_no_map(tmp_path: Path) -> None:
    """The sentence says so."""
    async with cluster(tmp_path) as (_, options):
        with pytest.raises(FailedError, match="there is no node, enough for 0"):
            await generate_gpu_mapping(options)


def test_a_template_is_printed(capsys: Capsys) -> None:
    """Standard output serves a pipe."""
    generate_template()

    assert capsys.readouterr().out == TEMPLATE


def test_a_template_never_overwrites_unasked(tmp_path: Path) -> None:
    """The file may hold a user's work."""
    file = tmp_path / "my.yaml"
    generate_template(str(file))
    file.write_text("mine", encoding="utf-8")

    with pytest.raises(RefusedInputError, match=f"^cannot write {file}: File exists; write over it with --force"):
        generate_template(str(file))

    assert file.read_text(encoding="utf-8") == "mine"
    generate_template(str(file), force=True)
    assert file.read_text(encoding="utf-8") == TEMPLATE


def test_a_template_for_a_missing_folder(tmp_path: Path) -> None:
    """The error is one sentence."""
    with pytest.raises(RefusedInputError, match="No such file or directory; choose another place"):
        generate_template(str(tmp_path / "nowhere" / "my.yaml"))
