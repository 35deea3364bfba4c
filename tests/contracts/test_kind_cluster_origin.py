"""The origin of a kind cluster, and its entry in a kubeconfig: containers and files of a few lines."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contracts.host import NAME, PORT, kubeconfig, nodes, without
from tests.contracts.loading import load
from tests.contracts.rendering import KIND, render, rendered

origin = load("roles", "kind_cluster", "library", "kind_cluster_origin.py")
entry = load("roles", "kind_cluster", "library", "kind_cluster_entry.py")

HERE, ELSEWHERE = "/home/me/gpu-scheduler", "/home/me/gpu-scheduler-of-a-colleague"
CONTEXT, SERVER = f"kind-{NAME}", f"https://127.0.0.1:{PORT}"
OTHERS = (("kind-other", "https://127.0.0.1:40002"), ("prod", "https://prod.example.com"))


def judged(containers: dict[str, Any], known_server: str = "") -> dict[str, Any]:
    """Return the module's result for these containers."""
    asked = {
        "checkout": HERE,
        "known_server": known_server,
        "made_by": "/gpu-scheduler/made-by",
        "made_network": "/gpu-scheduler/made-network",
    }
    found = [origin.Container(each["inspected"], asked["made_by"]) for each in containers.values()]
    answer: dict[str, Any] = origin.judge(found, asked)
    return answer


ROWS: list[Any] = [
    pytest.param(nodes(HERE), "", False, [], id="our mark"),
    pytest.param(nodes(HERE), "https://127.0.0.1:40009", False, [], id="our mark, and a kubeconfig of another port"),
    pytest.param(nodes(ELSEWHERE), "", True, [ELSEWHERE], id="a mark that begins like ours"),
    pytest.param(nodes(ELSEWHERE), SERVER, True, [ELSEWHERE], id="another's mark, and a kubeconfig that leads there"),
    pytest.param(nodes(), SERVER, False, [], id="no mark, and a kubeconfig that leads there"),
    pytest.param(nodes(), "https://127.0.0.1:40009", True, [], id="no mark, and a kubeconfig of another port"),
    pytest.param(nodes(), "", True, [], id="no mark and no kubeconfig"),
    pytest.param(nodes(port=""), "", True, [], id="no mark, no port and no kubeconfig"),
    pytest.param({}, "", False, [], id="nothing there"),
]


@pytest.mark.parametrize(("containers", "known", "strange", "makers"), ROWS)
def test_maker_is_known_by_the_mark_else_by_the_kubeconfig(
    containers: dict[str, Any], known: str, makers: list[str], *, strange: bool
) -> None:
    """A mark decides. Without one, the inventory's kubeconfig must have the cluster's own address and port."""
    answer = judged(containers, known)

    assert bool(answer["strangers"]) is strange
    assert answer["makers"] == makers
    assert len(answer["containers"]) == len(containers)


def test_a_foreign_container_of_the_cluster_is_named() -> None:
    """A container that was added with the cluster's label is named, and the cluster is refused for it."""
    ours, others = nodes(HERE), nodes(ELSEWHERE, name="added", port="")

    assert judged({**ours, **others})["strangers"] == ["added-control-plane", "added-worker"]


NEW: dict[bool, dict[str, Any]] = {
    exists: {"__kind_cluster_origin": {"network_exists": exists}, "kind_cluster_checkout": HERE}
    for exists in (True, False)
}


@pytest.mark.parametrize("exists", NEW)
def test_created_nodes_carry_the_marks(tmp_path: Path, *, exists: bool) -> None:
    """Every node of a new cluster names its checkout, and whether kind's network was created with it."""
    render(tmp_path, KIND, (("kind_cluster", each) for each in NEW.values()))
    (cluster,) = rendered(tmp_path, ["kind_cluster"], **NEW[exists])
    mounts = [
        [f"{mount['hostPath']}:{mount['containerPath']}" for mount in node["extraMounts"]] for node in cluster["nodes"]
    ]
    (container, *_) = nodes(HERE, network=not exists).values()

    assert mounts == [container["inspected"]["HostConfig"]["Binds"]] * 5


@dataclass
class Module:
    """The parts of AnsibleModule that the module uses."""

    kubeconfig: Path
    server: str = ""
    state: str = "absent"
    check_mode: bool = False
    params: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.params = {"kubeconfig": str(self.kubeconfig), "name": NAME, "state": self.state, "server": self.server}

    def atomic_move(self, source: str, target: str) -> None:
        Path(source).replace(target)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a kubeconfig with our entry among others."""
    path = tmp_path / "config"
    path.write_text(kubeconfig((CONTEXT, SERVER), *OTHERS, current="prod"))
    return path


def test_entry_is_taken_out_and_the_rest_stays_as_it_is_written(file: Path) -> None:
    """Context, cluster and user are removed; all other values keep their types, quotes and order."""
    text = file.read_text()
    answer = entry.run(Module(file, SERVER))

    assert answer == {"changed": True, "kept": "", "server": SERVER}
    assert yaml.safe_load(file.read_text()) == without(text, [CONTEXT])
    # The remaining lines are unchanged.
    assert set(file.read_text().splitlines()) <= set(text.splitlines())
    assert entry.run(Module(file, SERVER)) == {"changed": False, "kept": "", "server": ""}


def test_check_mode_and_reading_change_nothing(file: Path) -> None:
    """Both report the entry, and do not change the file."""
    text = file.read_text()

    assert entry.run(Module(file, SERVER, check_mode=True))["changed"]
    assert entry.run(Module(file, state="read")) == {"changed": False, "kept": "", "server": SERVER}
    assert file.read_text() == text


def test_current_context_is_emptied_where_it_was_ours(file: Path) -> None:
    """No other context becomes the current one."""
    file.write_text(file.read_text().replace("current-context: prod", f"current-context: {CONTEXT}"))
    entry.run(Module(file, SERVER))

    assert yaml.safe_load(file.read_text())["current-context"] == ""


def test_file_with_nothing_else_in_it_is_removed(file: Path) -> None:
    """The checkout's own kubeconfig is removed with its last cluster; a missing file is no error."""
    file.write_text(kubeconfig((CONTEXT, SERVER), current=CONTEXT))

    assert entry.run(Module(file, SERVER))["changed"]
    assert not file.exists()
    assert not entry.run(Module(file, SERVER))["changed"]


def test_user_without_a_context_keeps_the_file(file: Path) -> None:
    """A user without a context may still be someone's credentials."""
    config = yaml.safe_load(kubeconfig((CONTEXT, SERVER), current=CONTEXT))
    config["users"].append({"name": "me", "user": {"token": "secret"}})
    file.write_text(yaml.safe_dump(config))
    entry.run(Module(file, SERVER))

    assert yaml.safe_load(file.read_text())["users"] == [{"name": "me", "user": {"token": "secret"}}]


def test_link_is_followed(file: Path, tmp_path: Path) -> None:
    """A kubeconfig that is a symbolic link stays one."""
    link = tmp_path / "link"
    link.symlink_to(file)
    entry.run(Module(link, SERVER))

    assert link.is_symlink()
    assert CONTEXT not in file.read_text()


def test_alias_of_our_cluster_keeps_what_it_names(file: Path) -> None:
    """If the user added a context for our cluster and user, both stay: no context may lose its cluster."""
    config = yaml.safe_load(file.read_text())
    config["contexts"].append({"name": "mine", "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "ai"}})
    file.write_text(yaml.safe_dump(config))
    entry.run(Module(file, SERVER))

    config["contexts"] = [context for context in config["contexts"] if context["name"] != CONTEXT]
    assert yaml.safe_load(file.read_text()) == config


@pytest.mark.parametrize(
    ("old", "new", "removed", "why"),
    [
        pytest.param(SERVER, "https://gpu.example.com:6443", SERVER, "the cluster was at", id="another host"),
        pytest.param(SERVER, "https://127.0.0.1:40009", SERVER, "the cluster was at", id="another port"),
        pytest.param(SERVER, "https://gpu.example.com", "", "not on this host", id="another host, none removed"),
        pytest.param(f"user: {CONTEXT}", "user: prod", SERVER, "not both called", id="another's user"),
        pytest.param(f"cluster: {CONTEXT}", "cluster: prod", SERVER, "not both called", id="another's cluster"),
    ],
)
def test_entry_that_kind_did_not_write_for_this_cluster_stays(
    file: Path, old: str, new: str, removed: str, why: str
) -> None:
    """A context kind-NAME of another cluster stays, byte for byte, and the result says why."""
    file.write_text(file.read_text().replace(old, new))
    text = file.read_text()
    answer = entry.run(Module(file, removed))

    assert not answer["changed"]
    assert why in answer["kept"]
    assert file.read_text() == text


def test_entry_of_a_removed_cluster_is_removed_unless_its_port_answers(file: Path) -> None:
    """If the containers are already gone the entry is out of date. A port that answers belongs to another cluster."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        file.write_text(file.read_text().replace(PORT, str(server.getsockname()[1])))
        answer = entry.run(Module(file))
    assert not answer["changed"]
    assert "somebody answers at" in answer["kept"]

    assert entry.run(Module(file))["changed"]
    assert CONTEXT not in file.read_text()
