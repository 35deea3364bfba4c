"""Role observability on an API server with Prometheus Operator: what it is scraped as, and the message in the chat."""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from boards.panels import DOCS_URL
from tests import doc_commands
from tests.cluster.plays import Run, run
from tests.contracts.roles import ROOT
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.kinds import define
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import Process, program
from tests.integration.prometheus import Prometheus, Target
from tests.ports import free_port
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

pytestmark = pytest.mark.timeout(300)

CORE: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
SECRETS: Final = f"{CORE}/secrets"
MONITORING: Final = f"/apis/monitoring.coreos.com/v1/namespaces/{SYSTEM_NAMESPACE}"
OURS: Final = "?labelSelector=app.kubernetes.io/component%3Dobservability"
LABELS: Final = {"release": "stack"}
EXAMPLE: Final = ROOT / "examples" / "alertmanager.yml"
TEXTS: Final = ("title", "text", "send_resolved")
BOARDS: Final = ["cluster", "operations", "scheduling", "waiting"]
JOBS: Final = ["gpu-scheduler", "gpu-scheduler-controller", "gpu-scheduler-monitor", "gpu-scheduler-webhook"]


class Chat(http.server.ThreadingHTTPServer):
    """Stands for the chat: keeps each message that is posted. For a GET it answers as a scheduler with a conflict."""

    def __init__(self) -> None:
        self.messages: list[Object] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.server_address[1])


@contextmanager
def chat_server() -> Iterator[Chat]:
    """Run a chat."""
    with Chat() as chat:
        thread = threading.Thread(target=chat.serve_forever)
        thread.start()
        try:
            yield chat
        finally:
            chat.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        self.server.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(b"ok")

    def do_GET(self) -> None:
        self._answer(b"gpu_scheduler_conflicts 1\n")

    def _answer(self, body: bytes) -> None:
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Site:
    """An API server on which the role runs as on an existing cluster."""

    def __init__(self, folder: Path) -> None:
        self.plane = ControlPlane(folder)
        self.folder = folder
        self._receiver = ""
        self.kube = self.plane.kube
        self._kubeconfig = str(self.plane.kubeconfig(folder / "kubeconfig", ADMIN_TOKEN))
        self.kube.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})

    def play(self, *options: str, **values: object) -> Run:
        """Run the role."""
        given = {
            "kubeconfig": self._kubeconfig,
            "kube_context": "test",
            "kubectl_program": str(program("kubectl")),
            "observability_labels": LABELS,
            **values,
        }
        return run(
            "ansible-playbook",
            "site.yml",
            "-i",
            "inventory/existing",
            "--tags",
            "observability",
            "-e",
            json.dumps(given),
            *options,
        )

    def install(self, receiver: str = "") -> None:
        """Run the role with this receiver, or with any, unless that was the last one: each play takes seconds."""
        receiver = receiver or self._receiver or "slack"
        if self._receiver != receiver:
            self.play(observability_receiver=receiver).succeeded()
            self._receiver = receiver

    def typed(self, command: str) -> str:
        """Return what a command prints, which must succeed."""
        environment = {"PATH": f"{program('kubectl').parent}:/usr/bin:/bin", "KUBECONFIG": self._kubeconfig}
        done = subprocess.run(
            ("bash", "-c", command), env=environment, capture_output=True, text=True, timeout=limit(30), check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def boards(self) -> list[str]:
        """Return the boards that the cluster has."""
        found: Any = self.kube.get(f"{CORE}/configmaps{OURS}")
        return sorted(each["metadata"]["name"].removeprefix("gpu-scheduler-board-") for each in found["items"])

    def rules(self) -> Object:
        """Return the groups of rules that the cluster has."""
        (found,) = (self.kube.get(f"{MONITORING}/prometheusrules{OURS}") or {})["items"]
        spec: Object = found["spec"]
        return spec

    def alertmanager(self, key: str, address: str) -> Object | None:
        """Return the configuration that the operator made for Alertmanager, or None until it has this receiver."""
        made = self.made("alertmanager-stack-generated", "alertmanager.yaml.gz") or {"receivers": []}
        return made if any(key in each and address in json.dumps(each) for each in made["receivers"]) else None

    def made(self, secret: str, key: str) -> Object | None:
        """Return a configuration that the operator has made, or None until then."""
        found = self.kube.get(f"{SECRETS}/{secret}")
        if found is None or key not in found.get("data", {}):
            return None
        text = gzip.decompress(base64.b64decode(found["data"][key]))
        body: Object = yaml.safe_load(text)
        return body


@contextmanager
def operator(site: Site) -> Iterator[Process]:
    """Run Prometheus Operator, with the objects of which it makes a Prometheus and an Alertmanager."""
    certificate, key = site.plane.user_certificate(site.folder, "prometheus-operator", "system:masters")
    process = Process(
        "prometheus-operator",
        [
            str(program("prometheus-operator")),
            f"--apiserver=https://127.0.0.1:{site.plane.port}",
            f"--ca-file={site.plane.ca}",
            f"--cert-file={certificate}",
            f"--key-file={key}",
            f"--namespaces={SYSTEM_NAMESPACE}",
            f"--web.listen-address=127.0.0.1:{free_port()}",
            "--kubelet-endpoints=false",
        ],
        site.folder / "operator.log",
    )
    selected = {"matchLabels": LABELS}
    selectors = {f"{kind}Selector": selected for kind in ("serviceMonitor", "podMonitor", "rule")}
    try:
        for plural, spec in (
            ("prometheuses", {"serviceAccountName": "prometheus", **selectors}),
            ("alertmanagers", {"alertmanagerConfigSelector": selected}),
        ):
            kind = {"prometheuses": "Prometheus", "alertmanagers": "Alertmanager"}[plural]
            body = {"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": {"name": "stack"}, "spec": spec}
            site.kube.create(f"{MONITORING}/{plural}", body)
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster without Prometheus Operator."""
    site = Site(tmp_path_factory.mktemp("bare"))
    try:
        yield site
    finally:
        site.plane.stop()


@pytest.fixture(scope="module")
def site(bare: Site) -> Iterator[Site]:
    """The cluster, once Prometheus Operator has its kinds and runs."""
    define(bare.kube, "prometheus-operator")
    with operator(bare):
        yield bare


@pytest.mark.promise("observe-1")
def test_nothing_is_applied_where_prometheus_operator_is_absent(bare: Site) -> None:
    """No board either."""
    assert bare.play().succeeded().changed.get("observability", 0) <= 1
    assert bare.boards() == []


@pytest.mark.plays
@pytest.mark.promise("observe-1")
def test_whoever_insists_learns_what_is_missing(bare: Site) -> None:
    """`observability_mode: always` fails where Prometheus Operator is absent."""
    refused = bare.play(observability_mode="always")

    assert refused.code != 0
    assert "the cluster serves no podmonitors, prometheusrules, servicemonitors" in refused.story()


@pytest.mark.promise("observe-1")
def test_the_operator_makes_scrapes_of_all_programs_and_loads_the_alerts(site: Site, tmp_path: Path) -> None:
    """Prometheus' own tool accepts what the operator made."""
    site.install()
    assert site.boards() == BOARDS

    def jobs() -> list[str]:
        made = site.made("prometheus-stack", "prometheus.yaml.gz") or {}
        relabelled = [each for scrape in made.get("scrape_configs", ()) for each in scrape["relabel_configs"]]
        return sorted(each["replacement"] for each in relabelled if str(each.get("replacement")) in JOBS)

    eventually("each program is a job", lambda: jobs() == JOBS)
    made: Any = site.made("prometheus-stack", "prometheus.yaml.gz")
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({**made, "rule_files": []}), encoding="utf-8")
    checked("promtool", "check", "config", "--syntax-only", str(tmp_path / "prometheus.yaml"))
    rules: Any = site.kube.get(f"{CORE}/configmaps/prometheus-stack-rulefiles-0")
    (text,) = rules["data"].values()
    assert yaml.safe_load(text)["groups"] == site.rules()["groups"]
    for command in doc_commands.read("docs/monitoring.md"):
        if command.text.startswith("kubectl get"):
            assert "gpu-scheduler" in site.typed(command.text)


@pytest.mark.plays
@pytest.mark.promise("observe-1")
def test_a_run_repairs_damage_and_another_changes_nothing(site: Site) -> None:
    """A deleted object of ours is created again."""
    site.install()
    site.kube.delete(f"{MONITORING}/prometheusrules/gpu-scheduler")

    assert "observability" in site.play(observability_receiver="slack").succeeded().changed
    assert site.play(observability_receiver="slack").succeeded().changed.get("observability", 0) == 0


@pytest.mark.plays
def test_a_dry_run_before_the_installation_says_what_would_be_created(site: Site) -> None:
    """The namespace is missing, and the API server answers nothing about objects in it."""
    done = site.play("--check", observability_namespace="none-yet").succeeded()

    assert done.changed["observability"] == 1


def checked(name: str, *words: str) -> str:
    """Run one of Prometheus' own tools, which must succeed. Return its output."""
    done = subprocess.run((program(name), *words), capture_output=True, text=True, timeout=limit(30), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def alertmanager(made: Object, folder: Path) -> Iterator[int]:
    """Run Alertmanager with a configuration that its own tool accepts; yield its port."""
    config = folder / "alertmanager.yaml"
    # The shipped half minute in which alerts are gathered is long for a test.
    config.write_text(yaml.safe_dump(made).replace("group_wait: 30s", "group_wait: 1s"), encoding="utf-8")
    checked("amtool", "check-config", str(config))
    port = free_port()
    words = (
        str(program("alertmanager")),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    process = Process("alertmanager", list(words), folder / "alertmanager.log")
    try:
        yield port
    finally:
        process.stop()


def written(kind: str, message: Object) -> tuple[str, str]:
    """Return title and text of a message, as the chat shows them."""
    if kind == "slack":
        (attachment,) = message["attachments"]
        return attachment["title"], attachment["text"]
    (attachment,) = message["attachments"]
    title, text = (block["text"] for block in attachment["content"]["body"])
    return title, text


@pytest.mark.promise("observe-2")
@pytest.mark.parametrize(
    ("kind", "key"),
    [("slack", "slack_configs"), pytest.param("teams", "msteamsv2_configs", marks=pytest.mark.plays)],
)
def test_an_alert_arrives_in_the_chat(site: Site, kind: str, key: str, tmp_path: Path) -> None:
    """From the metric on: Prometheus' rule, the route that the operator made, the address out of the Secret."""
    with chat_server() as chat:
        address = f"http://127.0.0.1:{chat.port}/hook"
        site.kube.call("DELETE", f"{SECRETS}/alert-webhook")
        site.kube.create(SECRETS, {"metadata": {"name": "alert-webhook"}, "stringData": {"webhook-url": address}})
        site.install(kind)
        made = eventually("the operator has read the receiver", lambda: site.alertmanager(key, address), seconds=20)
        rules = site.rules()
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")

        with alertmanager(made, tmp_path) as port:
            prometheus = Prometheus(
                tmp_path,
                [Target("gpu-scheduler", "gpu-scheduler-a", chat.port)],
                rule_files=["rules.yaml"],
                alerting={"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]},
            )
            try:
                eventually("a message arrives", lambda: chat.messages, seconds=30)
            finally:
                prometheus.stop()

    title, message = written(kind, chat.messages[0])
    assert title == "GpuConflict firing (1)"
    assert ": 1 (critical, since " in message
    assert message.rstrip().endswith(f" UTC): {DOCS_URL}/alerts.md#gpuconflict")
    (ours,) = next(each[key] for each in made["receivers"] if key in each)
    (example,) = next(each[key] for each in yaml.safe_load(EXAMPLE.read_text())["receivers"] if key in each)
    assert {part: example[part] for part in TEXTS} == {part: ours[part] for part in TEXTS}


def test_example_for_an_alertmanager_without_the_operator_is_valid() -> None:
    """Alertmanager's own tool accepts it."""
    checked("amtool", "check-config", str(EXAMPLE))


@pytest.mark.promise("observe-1")
def test_mode_never_takes_everything_away(site: Site) -> None:
    """Boards, alerts, scrapes and receivers."""
    site.install()

    site.play(observability_mode="never", observability_receiver="slack").succeeded()

    assert site.boards() == []
    for plural in ("servicemonitors", "podmonitors", "prometheusrules"):
        assert (site.kube.get(f"{MONITORING}/{plural}{OURS}") or {})["items"] == []
