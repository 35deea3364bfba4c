"""Scenario existing: its cluster, its reader of the page, and the reader's values.

`python -m tests.cluster.existing.scenario make` and `unmake` can be called repeatedly.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.cluster.clusters import ROOT
from tests.cluster.existing import old_version, own_cluster
from tests.cluster.existing.own_cluster import CLUSTER, GPU_NODES, HOME, NAME, REGISTRY
from tests.cluster.existing.page import GRANT, PUSH, WRITE_VALUES, Page
from tests.cluster.existing.unprivileged import Unprivileged
from tests.waiting import limit

if TYPE_CHECKING:
    from tests.cluster import plays

READER: Final = Unprivileged(HOME / "reader")
VALUES: Final = READER.checkout / "inventory" / "existing" / "group_vars" / "all" / "local.yml"
PUSHED: Final = HOME / "pushed.json"
"""What the last push printed: the names of the images with their digests."""
GRANTED: Final = HOME / "granted.kubeconfig"
"""The kubeconfig that the administrator writes for the reader."""
PUSHED_NAME: Final = re.compile(r"\S+@sha256:[0-9a-f]{64}")
FIGURES: Final = HOME / "figures"
"""What the cases measured; the scenario prints it at its end."""
CONTEXT: Final = f"kind-{NAME}"
DEVICES: Final = 16
"""Simulated GPUs of each GPU node: no machine of the tests has real ones."""
SIMULATED: Final = {
    "monitor_source": "simulated",
    "monitor_simulated_inventory": {
        node: [{"count": DEVICES, "model": "A100-40GB", "memoryTotalMiB": 40960}] for node in GPU_NODES
    },
}


def images() -> dict[str, str]:
    """Return the pushed images with their digests, by the variable of the page that names each."""
    names: list[str] = json.loads(PUSHED.read_text(encoding="utf-8")) if PUSHED.exists() else []
    variables = {"gpu-scheduler": "SCHEDULER_IMAGE", "gpu-scheduler-check": "CHECK_IMAGE"}
    # The engine lists the newest first.
    return {variables[name.partition("@")[0].rsplit("/", 1)[-1]]: name for name in reversed(names)}


def page(kubeconfig: str = str(READER.kubeconfig)) -> Page:
    """Return the page with the reader's values."""
    return Page(
        {
            "ADMIN": str(CLUSTER.kubeconfig),
            "KUBECONFIG": kubeconfig,
            "CONTEXT": CONTEXT,
            "REGISTRY": f"{REGISTRY.address}/team",
            **images(),
        }
    )


def administer(commands: str) -> str:
    """Run commands of the page as the administrator, who is root here; return what they print."""
    done = subprocess.run(
        ("bash", "-euo", "pipefail", "-c", page(str(GRANTED)).script(commands)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=limit(600),
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


def read(commands: str) -> plays.Run:
    """Run commands of the page as its reader, in the reader's copy of the checkout."""
    return READER.run(page().script(commands))


def measured(figures: str) -> None:
    """Keep what a case measured."""
    with FIGURES.open("a", encoding="utf-8") as file:
        file.write(f"{figures}\n")


def make() -> None:
    """Make everything that the cases need."""
    own_cluster.make()
    push()
    old_version.unpack()
    old_version.VALUES.write_text(json.dumps(SIMULATED), encoding="utf-8")
    old_version.push_images()
    READER.make()
    grant()
    for commands in page().blocks(WRITE_VALUES):
        read(commands).succeeded()
    # What the page leaves to its reader, because it differs between clusters.
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in SIMULATED.items())
    READER.write(VALUES, VALUES.read_text(encoding="utf-8") + lines)


def push() -> None:
    """Build and push the images of this checkout, as the page says; keep the names that it prints."""
    (commands,) = page().blocks(PUSH)
    names = [line for line in administer(commands).splitlines() if PUSHED_NAME.fullmatch(line)]
    PUSHED.write_text(json.dumps(names), encoding="utf-8")
    assert len(images()) == 2, f"a local.yml of your own in inventory/existing may hinder the push: {names}"


def grant() -> None:
    """Let the administrator grant the rights, as the page says, and hand the kubeconfig to the reader."""
    for commands in page().blocks(GRANT):
        administer(commands)
    READER.write(READER.kubeconfig, GRANTED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    {"make": make, "unmake": own_cluster.unmake}[sys.argv[1]]()
