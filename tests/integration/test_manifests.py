"""An API server takes every object that the roles make, with any options: no field is unknown, no value refused."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.contracts import test_driver, test_monitor, test_pod_options
from tests.contracts.rendering import KIND, render, rendered
from tests.contracts.test_manifests import ROLES
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.programs import program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Object = dict[str, Any]

CASES: Final = [
    (ROLES, {}),
    *((("driver",), each) for each in test_driver.CASES.values()),
    *((("monitor",), each) for each in test_monitor.CASES.values()),
    *((test_pod_options.ROLES, each) for each in test_pod_options.CASES.values()),
]
"""Roles, and what the inventory gives them."""
MADE_UP: Final = "Warning: tls: failed to find any PEM data in certificate input"
"""Said of the CA, which is made up where templates are rendered without a cluster."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster without any object of ours."""
    # As kubeadm starts it: a monitor that reads NVML is privileged.
    plane = ControlPlane(tmp_path_factory.mktemp("empty"), "--allow-privileged")
    yield plane
    plane.stop()


def test_an_api_server_takes_every_object_of_every_case(empty: ControlPlane, tmp_path: Path) -> None:
    """Applied on the server, unknown fields refused. Namespaces are made, for what is in them; the rest is tried."""
    (tmp_path / "cases").mkdir()
    render(tmp_path / "cases", KIND, ((role, variables) for names, variables in CASES for role in names))
    kubectl = (str(program("kubectl")), f"--kubeconfig={empty.kubeconfig(tmp_path / 'kubeconfig', ADMIN_TOKEN)}")

    def apply(objects: list[Object], *options: str) -> str:
        command = (*kubectl, "apply", "--server-side", "--force-conflicts", "--validate=strict", *options, "-f", "-")
        done = subprocess.run(command, input=yaml.safe_dump_all(objects), capture_output=True, text=True, check=False)
        return done.stderr.replace(f"{MADE_UP}\n", "")

    for names, variables in CASES:
        # cert-manager's kinds are not there.
        found = [
            each
            for each in rendered(tmp_path / "cases", names, KIND, **variables)
            if not each["apiVersion"].startswith("cert-manager.io/")
        ]
        wanted = {each["metadata"].get("namespace", "default") for each in found}
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}} for each in sorted(wanted)]
        namespaces += [each for each in found if each["kind"] == "Namespace"]

        assert (apply(namespaces), apply(found, "--dry-run=server")) == ("", ""), (names, variables)
