"""Reads the environment once into frozen settings. No module below the command line reads variables again.

A value that cannot be used stops the process with one sentence: variable, value, rule, and an example that works.
"""

from __future__ import annotations

import os
import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import durationpy

from gpu_scheduler.certificate_days import CA_DAYS, RENEW_DAYS, SERVING_DAYS
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.names import MONITOR, SCHEDULER_NAME, SYSTEM_NAMESPACE, WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DURATION_RULE = "must be a positive Go duration"
_PORT_RULE = "must be a TCP port, 0 to 65535"
_LEAST_GAP = 1
"""Fewest seconds between renew deadline and end of a Lease: with fewer, the sockets would drop healthy connections."""
_LONGEST_INTERVAL = 20
"""Most seconds between two looks for conflicts: the contract (lead-5) promises to report one within 30 s."""
# Linux' devices.txt leaves 240 to 254 for local use too, but the kernel gives those to drivers that name no major.
_LOCAL_MAJORS = (*range(60, 64), *range(120, 128))
"""Major numbers of character devices that no driver in Linux uses."""
_SHOWN = 80
"""Most characters of a wrong value that an error quotes."""


class SettingsError(ValueError):
    """The operator's environment cannot be used; the text names the variable, the rule, and a valid example."""


def setting(read: Callable[[str], Any], default: Any, rule: str, example: str) -> Any:
    """Return the field of one variable.

    `read` parses its text or raises ValueError; an error then quotes `rule` and `example`. `default` applies if the
    variable is unset or empty: a value, a function that returns one, or MISSING if the variable is required.
    """
    rules = {"read": read, "rule": rule, "example": example}
    if default is MISSING:
        return field(metadata=rules)
    if callable(default):
        return field(default_factory=default, metadata=rules)
    return field(default=default, metadata=rules)


def _seconds(text: str) -> float:
    """Convert a Go duration ("15s", "1m30s", "400ms") to seconds; raise ValueError unless it is positive."""
    try:
        seconds = float(durationpy.from_str(text).total_seconds())
    except (durationpy.DurationError, OverflowError) as error:
        raise ValueError(text) from error
    if seconds <= 0:
        raise ValueError(text)
    return seconds


def _up_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
            raise ValueError(text)
        return int(text)

    return read


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return read


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(text)
    return text


def _level(text: str) -> str:
    return _one_of("DEBUG", "INFO", "WARNING", "ERROR")(text.upper())


def _flag(text: str) -> bool:
    return _one_of("true", "false")(text.lower()) == "true"


def _local_major(text: str) -> int:
    major = _up_to(127)(text)
    if major not in _LOCAL_MAJORS:
        raise ValueError(text)
    return major


def _days(text: str) -> int:
    days = _up_to(3650)(text)
    if not days:
        raise ValueError(text)
    return days


_port = _up_to(65535)
_percent = _up_to(100)


def _own_namespace() -> str:
    """Return the pod's namespace, from its service account's volume; outside a cluster, the product's namespace."""
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip() or SYSTEM_NAMESPACE
    except OSError:
        return SYSTEM_NAMESPACE


def _own_name() -> str:
    """Return this host's name, which in a pod is the pod's name."""
    return os.uname().nodename.lower()


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """Settings of every long-running command. Durations are seconds here and Go durations in the environment."""

    scheduler_name: str = setting(
        _name, SCHEDULER_NAME, "must be a DNS subdomain, the schedulerName that our pods carry", "gpu-scheduler"
    )
    """Which pods are ours: those with this `spec.schedulerName`."""
    log_level: str = setting(_level, "INFO", "must be one of DEBUG, INFO, WARNING, ERROR", "INFO")
    """The least level of log lines that are written."""
    http_port: int = setting(_port, 8080, _PORT_RULE, "8080")
    """The port of health and metrics."""
    bind_address: str = setting(str, "", "must be an address of this host; empty means all", "127.0.0.1")
    """The address on which all ports are opened."""
    gpu_scheduler_commit: str = setting(str, "unknown", "the commit this was built from", "0a1b2c3")
    """The commit in version, first log line and metric `gpu_scheduler_build_info`; the image sets it."""

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each fault in the combination of values that are valid alone."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class LeaderSettings(CommonSettings):
    """Settings of a command with leader election. `gpu-scheduler controller` reads only these."""

    kubernetes_namespace: str = setting(
        _name, _own_namespace, "must be the namespace that holds the Lease and the settings", "gpu-scheduler-system"
    )
    """Where the Lease and the ConfigMaps with settings and limits are."""
    pod_name: str = setting(
        str,
        _own_name,
        "must be this replica's name, part of the lease holder's identity",
        "gpu-scheduler-6d5f-x2x4z",
    )
    """The name of this replica."""
    lease_duration: float = setting(_seconds, 15, _DURATION_RULE, "15s")
    """How long a Lease is valid that is not renewed: after this time another replica leads."""
    renew_deadline: float = setting(_seconds, 10, _DURATION_RULE, "10s")
    """How long the leader writes after its last renewal."""
    retry_period: float = setting(_seconds, 2, _DURATION_RULE, "2s")
    """How often the Lease is renewed, or tried for."""
    # The API server sends a bookmark about every minute, so a watch without events receives data within this time.
    watch_idle_limit: float = setting(
        _seconds, 90, "must be a positive Go duration: a watch without data for this time is reopened", "90s"
    )
    """How long a watch may receive nothing before it is opened anew."""

    @property
    def lease_gap(self) -> float:
        """Seconds from the renew deadline, when the Lease's holder stops writing, to the end of the Lease."""
        return round(self.lease_duration - self.renew_deadline, 6)

    def problems(self) -> Iterator[str]:
        """Check the timings: a holder must have stopped before another replica may take its Lease."""
        if not self.retry_period * 1.5 < self.renew_deadline or self.lease_gap < _LEAST_GAP:
            given = f"{self.retry_period:g}s, {self.renew_deadline:g}s, {self.lease_duration:g}s"
            yield (
                f'cannot use RETRY_PERIOD, RENEW_DEADLINE, LEASE_DURATION "{given}": '
                f"1.5 x retry < renew and renew + {_LEAST_GAP}s <= lease must hold "
                "(example: RETRY_PERIOD=2s RENEW_DEADLINE=10s LEASE_DURATION=15s)"
            )


@dataclass(frozen=True, kw_only=True)
class RunSettings(LeaderSettings):
    """Settings of `gpu-scheduler run`."""

    gpu_sharing: Literal["same-workload", "any", "none"] = setting(
        _one_of("same-workload", "any", "none"),
        "same-workload",
        "must be one of same-workload, any, none",
        "same-workload",
    )
    """Who may share a GPU: pods whose common map says so, any pods, or none."""
    scheduling_strategy: Strategy = setting(  # noqa: RUF009 - it makes a field
        Strategy, Strategy.LEAST_UTILIZED, f"must be one of {', '.join(Strategy)}", "least_utilized"
    )
    """The strategy of pods that name none, as long as ConfigMap `gpu-scheduler-settings` has none."""
    isolation: Literal["env", "dra"] = setting(
        _one_of("env", "dra"),
        "env",
        "must be env, a variable names the GPUs, or dra, the kubelet gives a container its GPUs and no other",
        "dra",
    )
    """How GPUs reach containers: with `dra`, ResourceClaims and ResourceSlices are watched too."""
    gpu_utilization_goal: int = setting(
        _percent, 80, "must be a percentage, 0 to 100: GPUs that are busier get no pod by strategy", "80"
    )
    """Percent: GPUs that are busier get no pod by strategy."""
    monitor_namespace: str = setting(
        _name, MONITOR, "must be the namespace of the monitors' Leases", "gpu-scheduler-monitor"
    )
    """Where the monitors renew the Leases of their nodes."""
    scheduling_interval: float = setting(_seconds, 5, _DURATION_RULE, "5s")
    """The longest time between two checks for pods whose back-off has ended, and for conflicts."""
    pod_initial_backoff: float = setting(_seconds, 1, _DURATION_RULE, "1s")
    """The first back-off of a pod, after four fruitless attempts in a row or a failed bind; it doubles each time."""
    pod_max_backoff: float = setting(_seconds, 10, _DURATION_RULE, "10s")
    """How long a pod backs off at most."""
    # Cluster events requeue pods. The resync is for a change that no cluster event covers.
    pod_resync: float = setting(_seconds, 300, _DURATION_RULE, "5m")
    """How often a pod that waits is tried again if no cluster event requeues it."""
    # The audit checks all pods at once, so it must not run too often.
    audit_interval: float = setting(_seconds, 300, _DURATION_RULE, "5m")
    """How often the ledger is compared with one that is rebuilt from the API objects."""
    # Off by default: the endpoints publish the names of pods and of the GPUs that they hold.
    debug_endpoints: bool = setting(
        _flag, False, "must be true or false: whether /debug/ledger lists which pod holds which device", "true"
    )
    """Whether `/debug/ledger` lists which pod holds which device."""
    decision_journal: Path | None = setting(  # noqa: RUF009 - it makes a field
        Path,
        None,
        "must be a file that can be written: each decision and its inputs, one JSON line each; empty means none",
        "/var/log/gpu-scheduler/journal",
    )
    """Where each decision and its inputs are written, a JSON line each, for `gpu-scheduler replay`; empty: nowhere."""

    def problems(self) -> Iterator[str]:
        """Check the back-offs too, and that the loop wakes often enough to report a conflict in time."""
        yield from super().problems()
        if self.scheduling_interval > _LONGEST_INTERVAL:
            yield (
                f'cannot use SCHEDULING_INTERVAL "{self.scheduling_interval:g}s": it must be at most '
                f"{_LONGEST_INTERVAL}s, so that a GPU that is held twice is reported within 30 s "
                "(example: SCHEDULING_INTERVAL=5s)"
            )
        if self.pod_initial_backoff > self.pod_max_backoff:
            given = f"{self.pod_initial_backoff:g}s, {self.pod_max_backoff:g}s"
            yield (
                f'cannot use POD_INITIAL_BACKOFF, POD_MAX_BACKOFF "{given}": the first must not exceed the second '
                "(example: POD_INITIAL_BACKOFF=1s POD_MAX_BACKOFF=10s)"
            )


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(CommonSettings):
    """Settings of `gpu-scheduler webhook`."""

    webhook_port: int = setting(_port, 8443, _PORT_RULE, "8443")
    """The port of admission."""
    certificate_dir: Path = setting(  # noqa: RUF009 - it makes a field
        Path,
        Path("/etc/gpu-scheduler/tls"),
        "must be a directory with tls.crt and tls.key",
        "/etc/gpu-scheduler/tls",
    )
    """Where the serving certificate is; a new one is used without a restart."""
    client_ca: Path | None = setting(  # noqa: RUF009 - it makes a field
        Path,
        None,
        "must be a file of PEM certificates, one of which signed each caller's certificate; empty accepts every caller",
        "/etc/gpu-scheduler/client-ca/ca.crt",
    )
    """Who may call: peers whose certificate one of these CAs signed."""
    certificate_poll: float = setting(_seconds, 10, _DURATION_RULE, "10s")
    """How often the files of the certificate are read."""
    # Time for the endpoint's removal to reach every kube-proxy before the listener closes.
    drain_period: float = setting(_seconds, 3, _DURATION_RULE, "3s")
    """How long the webhook serves after SIGTERM."""


@dataclass(frozen=True, kw_only=True)
class RenewerSettings(CommonSettings):
    """Settings of `gpu-scheduler renew`."""

    kubernetes_namespace: str = setting(
        _name, _own_namespace, "must be the namespace of the webhook and its Secrets", "gpu-scheduler-system"
    )
    """Where the webhook and its Secrets are."""
    webhook_service: str = setting(
        _name, WEBHOOK, "must be the Service whose names the certificate is made for", "gpu-scheduler-webhook"
    )
    """The Service for whose names the certificate is made."""
    serving_days: int = setting(
        _days, SERVING_DAYS, "must be a number of days, 1 to 3650: how long a new certificate is valid", "365"
    )
    """How long a new certificate is valid."""
    renew_days: int = setting(
        _days, RENEW_DAYS, "must be a number of days, 1 to 3650: a certificate with fewer days left is renewed", "30"
    )
    """How long before its end a certificate is renewed."""

    def problems(self) -> Iterator[str]:
        """Check that a new certificate is not due at once."""
        if self.renew_days >= self.serving_days:
            yield (
                f'cannot use RENEW_DAYS, SERVING_DAYS "{self.renew_days}, {self.serving_days}": '
                "the first must be less than the second (example: RENEW_DAYS=30 SERVING_DAYS=365)"
            )


@dataclass(frozen=True, kw_only=True)
class IssuerSettings(RenewerSettings):
    """Settings of `gpu-scheduler issue`."""

    ca_days: int = setting(_days, CA_DAYS, "must be a number of days, 1 to 3650: how long a new CA is valid", "3650")
    """How long a new CA is valid."""
    # An installer may apply the registrations after the Job that writes the CA into them.
    registration_timeout: float = setting(_seconds, 120, _DURATION_RULE, "2m")
    """How long to wait for the webhook's registrations."""

    def problems(self) -> Iterator[str]:
        """Check too that the CA outlives a certificate until the next one."""
        yield from super().problems()
        if self.ca_days < self.serving_days + self.renew_days:
            yield (
                f'cannot use CA_DAYS "{self.ca_days}": it must be at least SERVING_DAYS + RENEW_DAYS, '
                f"{self.serving_days + self.renew_days} (example: CA_DAYS=3650 SERVING_DAYS=365 RENEW_DAYS=30)"
            )


@dataclass(frozen=True, kw_only=True)
class MonitorSettings(CommonSettings):
    """Settings of `gpu-scheduler monitor`."""

    node_name: str = setting(_name, MISSING, "must be the name of the node that this process runs on", "node1")
    """The node whose GPUs are read."""
    kubernetes_namespace: str = setting(
        _name, _own_namespace, "must be the namespace that holds the nodes' Leases", "gpu-scheduler-monitor"
    )
    """Where the Lease of the node is."""
    pod_name: str = setting(
        str, _own_name, "must be this pod's name, the holder of its node's Lease", "gpu-scheduler-monitor-x2x4z"
    )
    """The holder of the node's Lease."""
    monitor_interval: float = setting(_seconds, 15, _DURATION_RULE, "15s")
    """The time between two readings; a Lease lasts three of them."""
    monitor_source: Literal["nvml", "simulated"] = setting(
        _one_of("nvml", "simulated"),
        "nvml",
        "must be nvml, the GPUs of the node, or simulated, those that a file declares",
        "nvml",
    )
    """Where readings come from."""
    simulated_inventory: Path = setting(  # noqa: RUF009 - it makes a field
        Path,
        Path("/etc/gpu-scheduler/inventory/inventory.yaml"),
        "must be a YAML or JSON file: node to groups of GPUs",
        "/etc/gpu-scheduler/inventory/inventory.yaml",
    )
    """The GPUs of source `simulated`, read anew at each reading."""
    gpu_utilization_goal: int = setting(
        _percent, 80, "must be a percentage, 0 to 100: GPUs above it count as busy", "80"
    )
    """Percent that divides busy GPUs from others, in label `agentaflow.gpu/utilization-tier`."""


@dataclass(frozen=True, kw_only=True)
class DriverSettings(CommonSettings):
    """Settings of `gpu-scheduler driver`."""

    node_name: str = setting(_name, MISSING, "must be the name of the node that this process runs on", "node1")
    """The node whose GPUs are handed to containers."""
    driver_source: Literal["nvidia", "simulated"] = setting(
        _one_of("nvidia", "simulated"),
        "nvidia",
        "must be nvidia, GPUs that NVIDIA's container toolkit describes, or simulated, those that a file declares",
        "nvidia",
    )
    """Who describes the devices for the container runtime: NVIDIA's toolkit, or the driver itself."""
    kubelet_dir: Path = setting(  # noqa: RUF009 - it makes a field
        Path, Path("/var/lib/kubelet"), "must be the kubelet's root directory", "/var/lib/kubelet"
    )
    """Where the kubelet looks for plugins. What is prepared is stored there too."""
    cdi_dir: Path = setting(  # noqa: RUF009 - it makes a field
        Path,
        Path("/var/run/cdi"),
        "must be the directory of the container runtime for CDI specs that programs write",
        "/var/run/cdi",
    )
    """Where source `simulated` writes its CDI spec, and where source `nvidia` looks for the toolkit's."""
    static_cdi_dir: Path = setting(  # noqa: RUF009 - it makes a field
        Path,
        Path("/etc/cdi"),
        "must be the directory of the container runtime for CDI specs that stay over a restart",
        "/etc/cdi",
    )
    """Where source `nvidia` looks for the toolkit's CDI spec too."""
    simulated_device_major: int = setting(
        _local_major, 120, "must be 60 to 63 or 120 to 127, the major numbers that no driver in Linux uses", "120"
    )
    """The major number of simulated device nodes; opening one fails, as no driver has it. The minor is the index."""


AnySettings = TypeVar("AnySettings", bound=CommonSettings)


def read_settings(kind: type[AnySettings]) -> AnySettings:
    """Read `kind` from the environment; raises SettingsError with one line per bad variable."""
    values: dict[str, Any] = {}
    wrong = []
    for each in fields(kind):
        variable = each.name.upper()
        text = os.environ.get(variable, "")
        needed = each.default is MISSING and each.default_factory is MISSING
        if text or needed:
            try:
                values[each.name] = each.metadata["read"](text)
            except ValueError:
                rule, example = each.metadata["rule"], each.metadata["example"]
                wrong.append(f'cannot use {variable} "{text[:_SHOWN]}": {rule} (example: {variable}={example})')
    if wrong:
        raise SettingsError("\n".join(wrong))
    made = kind(**values)
    problems = "\n".join(made.problems())
    if problems:
        raise SettingsError(problems)
    return made
