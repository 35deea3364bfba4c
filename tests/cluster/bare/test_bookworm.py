"""First contact on Debian 12, which has Python 3.11: what users' machines have, lack and set, up to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.bare.machine import CACHE_THERE, LONGEST

if TYPE_CHECKING:
    from tests.cluster.bare.machine import Machine

pytestmark = pytest.mark.timeout(LONGEST)
NAMELESS: Final = 54321
"""A user's number that /etc/passwd does not have, as OpenShift and `docker run --user` give."""
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
clusters: [{name: mine, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: mine, context: {cluster: mine, user: mine}}]
users: [{name: mine, user: {token: none}}]
"""


def test_without_venv_one_sentence_says_what_to_install(bare: Machine) -> None:
    """And once it is installed, the same command goes on (B3)."""
    bare.run("apt-get update --quiet && apt-get purge --yes python3-venv python3.11-venv").succeeded()

    refused = bare.run("make env-deploy")
    assert refused.code != 0
    assert "apt-get install python3-venv" in refused.output
    assert "Traceback" not in refused.output

    bare.run("apt-get install --yes python3-venv").succeeded()
    bare.run("make env-deploy").succeeded()


def test_a_locale_that_is_not_there_hinders_nothing(bare: Machine) -> None:
    """Clients of ssh forward the user's (B4). Check mode ends before the engine, which there is none of."""
    done = bare.run("make up ARGS='--check --diff'", LANG="en_US.UTF-8", LC_ALL="en_US.UTF-8").succeeded()

    assert "a run would install and start one" in done.output
    assert not bare.has("docker")


def test_a_user_without_a_name_can_install_on_a_cluster(bare: Machine) -> None:
    """It gets as far as the cluster, which does not answer (B2)."""
    (bare.root / "kubeconfig").write_text(KUBECONFIG, encoding="utf-8")
    bare.run("chmod 755 /root && chmod -R a+rX .").succeeded()
    kubectl = f"$(echo {CACHE_THERE}/bin/kubectl-v*/kubectl)"
    options = f"-e kube_context=mine -e kubectl_program={kubectl}"
    refused = bare.run(
        f'make up INVENTORY=inventory/existing ARGS="{options}"', user=NAMELESS, KUBECONFIG="/kubeconfig"
    )

    assert "uid not found" not in refused.output
    assert "127.0.0.1" in refused.output


def test_an_engine_is_installed_and_started(bare: Machine) -> None:
    """Without python3-apt, for which Ansible starts its module again under the system's Python (B1)."""
    bare.run("make up ARGS='--tags preflight,container_engine'").succeeded()

    assert bare.run("docker version").code == 0
    assert not bare.has("debootstrap")


def test_debootstrap_is_installed_where_only_an_engine_is_there(bare: Machine) -> None:
    """The image of Python is built, because it is not in the cache (B1)."""
    bare.run("rm -f /root/.cache/gpu-scheduler/images/python-*").succeeded()
    bare.run("make up ARGS='--tags preflight,container_engine,node_image -e node_image_source=build'").succeeded()

    assert bare.has("debootstrap")
    bare.run("make down").succeeded()
    assert bare.processes() == []
