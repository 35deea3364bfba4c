"""The command line follows kubectl's conventions: expressions, selectors, names, --watch, and a terminal's width."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.cli.jsonpath import read_template, written
from gpu_scheduler.cli.options import Options, Output
from gpu_scheduler.cli.output import Listing, PrintedTable, render
from tests.integration.installed import TEMPLATE, Installed, interrupted, read_until

if TYPE_CHECKING:
    from tests.integration.namespace import Namespace
    from tests.integration.workloads import Workloads

NAME = "metadata.name"
# A shell word each, as kubectl gets it. Every value is there, and none is null.
TEMPLATES = (
    "{.items[*].metadata.name}",
    "{.items[0].metadata.name}{.kind}",
    "{.items[-1:].metadata.name}",
    "{.items[0:2].metadata.name}",
    "{.items[0,2].metadata.name}",
    "{.items[*]['kind','apiVersion']}",
    "{..kind}",
    "{.items..image}",
    r"{.items[*].metadata.annotations.agentaflow\.gpu/assigned-devices}",
    r"{.items[*].metadata.annotations['agentaflow\.gpu/assigned-index']}",
    '{range .items[*]}{.metadata.name}{"\\t"}{.spec.nodeName}{"\\n"}{end}',
    "{range .items[*]}{.metadata.name}:{range .spec.containers[*]} {.name}={.image}{end};{end}",
    '{.items[?(@.metadata.name=="train-1")].spec.nodeName}',
    '{.items[?(@.metadata.name!="train-1")].metadata.name}',
    "{.items[?(@.spec.nodeName)].metadata.name}",
    "{.items[?(@.spec.terminationGracePeriodSeconds>5)].metadata.name}",
    "{.items[?(@.spec.terminationGracePeriodSeconds<5)].metadata.name}",
    "{.items[?(@.spec.enableServiceLinks==true)].metadata.name}",
    "{.items[*].spec.terminationGracePeriodSeconds}{'.'}",
    "{$.items[*].none}{@.kind}",
    "no expression but text {.kind}",
)
UNREADABLE = ("{.items[}", "{items}", "{end}", "{.items[first]}", '{"open}', "{.items[*]name}", "{..*}")


@pytest.mark.promise("cli-9")
def test_expressions_are_kubectls(cli: Installed, populated: Namespace) -> None:
    """The same text for the same data, and what kubectl cannot read is refused."""
    data = json.loads(cli.run("kubectl", "get", "pods", "-o", "json"))
    for template in TEMPLATES:
        assert written(read_template(template), data) == cli.run("kubectl", "get", "pods", "-o", f"jsonpath={template}")
    for template in UNREADABLE:
        cli.run("kubectl", "get", "pods", "-o", f"jsonpath={template}", code=1)
        refusal = cli.refused("gpu-scheduler", "workloads", "-o", f"jsonpath={template}", code=2)
        assert refusal.startswith(f"cannot read -o jsonpath={template}")
        assert "(example: -o jsonpath=" in refusal

    columns = f"A:.{NAME},B:{{.spec.nodeName}},C:kind,D:.none"
    tables = (PrintedTable((), ()), PrintedTable((), ()))
    listing = Listing("Pod", data["items"], *tables)
    printed = render(listing, Options(output=Output.CUSTOM_COLUMNS, expression=columns))
    theirs = cli.run("kubectl", "get", "pods", "-o", f"custom-columns={columns}")
    assert [line.split() for line in printed.splitlines()] == [line.split() for line in theirs.splitlines()]
    beyond = ("-o", "custom-columns=A:.spec.containers[5].name")
    cli.run("kubectl", "get", "pods", *beyond, code=1)
    refusal = cli.refused("gpu-scheduler", "nodes", "-o", "custom-columns=A:.models[99]", code=1)
    assert refusal.startswith('cannot print "A:.models[99]" of -o custom-columns: index 99 ')
    for path in (f".{NAME}", f"{{.{NAME}}}", ".spec.nodeName"):
        sorted_by = ("--sort-by", path, "-o", "jsonpath={.items[*].metadata.name}")
        expression = Options(output=Output.JSONPATH, expression=sorted_by[-1][9:], sort_by=path)
        assert render(listing, expression) == cli.run("kubectl", "get", "pods", *sorted_by)

    shown = cli.run("gpu-scheduler", "nodes", "-o", "jsonpath={range .items[*]}{.name}={.gpus.held} {end}")
    assert shown == "node1=2 node2=1 node3=0 node4=0 "
    assert cli.run("gpu-scheduler", "nodes", "--sort-by", ".gpus.held", "-o", "name").split()[-1] == "node/node1"


@pytest.mark.promise("cli-10")
def test_names_and_selectors_choose(cli: Installed, populated: Namespace, workloads: Workloads) -> None:
    """The API server selects by labels and fields. Unknown names and namespaces are errors."""
    workloads.place("job", template=TEMPLATE, gpuRequirements={"gpuCount": 1})
    workloads.wait("job", "Scheduled")
    populated.patch_node("node2", {"metadata": {"labels": {"rack": "b"}}})

    def named(*words: str, code: int = 0) -> list[str]:
        return cli.run("gpu-scheduler", *words, "-o", "name", code=code).split()

    assert named("nodes", "small", "node1") == ["node/node1", "node/node3"]
    assert named("nodes", "-l", "rack=b") == ["node/node2"]
    assert named("nodes", "--field-selector", f"{NAME}!=node1") == [f"node/node{number}" for number in (2, 3, 4)]
    assert named("workloads", "train-0", "job") == ["gpuworkload.agentaflow.io/job", "pod/train-0"]
    assert named("workloads", "-l", "agentaflow.gpu/workload=job") == ["pod/job-0"]
    assert named("workloads", "--field-selector", "spec.nodeName=node1") == ["pod/train-0"]
    assert named("workloads", "train-0", "gone", code=1) == ["pod/train-0"]
    assert "(example: -l app=train)" in cli.refused("gpu-scheduler", "nodes", "-l", "a=b=c", code=2)
    nowhere = cli.refused("gpu-scheduler", "workloads", "-n", "nowhere", code=1)
    assert '"nowhere": ' in nowhere


@pytest.mark.promise("cli-10")
def test_a_listing_follows_changes(cli: Installed, populated: Namespace) -> None:
    """With --watch: all rows, and then one for each change, which only the chosen objects cause."""
    pods = cli.start("gpu-scheduler", "workloads", "train-0", "late-0", "-w")
    nodes = cli.start("gpu-scheduler", "nodes", "-w", "-l", "kubernetes.io/hostname!=none", "-o", "name")
    begun = [read_until(pods, "train-0", "late-0"), read_until(nodes, *(f"node{number}" for number in (1, 2, 3, 4)))]
    populated.delete("train-0")
    begun[0] += read_until(pods, "Deleted", "Scheduled")
    changed = read_until(nodes, "node1")

    (code, rows, complaints), (other_code, names, _) = interrupted(pods), interrupted(nodes)

    assert (code, other_code, complaints) == (0, 0, "")
    shown = [line.split()[:4] for line in (begun[0] + rows).splitlines()]
    assert shown[0][:2] == ["NAME", "KIND"]
    assert ["train-0", "Pod", "Deleted", "node1"] in shown
    assert ["late-0", "Pod", "Scheduled", "node1"] in shown
    assert {row[0] for row in shown[1:]} == {"train-0", "late-0"}
    assert begun[1].split() == [f"node/node{number}" for number in (1, 2, 3, 4)]
    assert set((changed + names).split()) == {"node/node1"}


@pytest.mark.promise("cli-5", "cli-11")
def test_the_screen_of_watch_scrolls(cli: Installed, populated: Namespace) -> None:
    """At 80x24. What waits stands first; leader and strategy are named; q ends it and leaves the terminal as it was."""
    for number in range(30):
        populated.pod(f"more-{number}", f"{number}=node1:1\n", "1")
    populated.wait_message("more-29", "GpuHeld: ")
    code, drawn = cli.on_terminal(
        "gpu-scheduler", "watch", until="Leader gpu-scheduler", columns=80, lines=24, keys=(("G", "node4"), ("q", ""))
    )

    assert code == 0
    first, _, rest = drawn.partition("\x1b[H")[2].partition("\x1b[J")
    assert "33 workloads, 31 pending" in first
    body = [line for line in first.replace("\x1b[K", "").splitlines() if populated.name in line]
    assert body
    assert all("Pending" in line for line in body)
    assert "Leader gpu-scheduler" in drawn
    assert "strategy least_utilized (default)" in drawn
    frames = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", each) for each in rest.split("\x1b[H")]
    assert any("node4" in each and "late-0" not in each for each in frames)
    assert max(len(line) for each in frames[:-1] for line in each.splitlines()) <= 80
