"""The environment, read once, becomes frozen settings; nothing below the command line reads variables again.

A value that cannot be used stops the process with one sentence: variable, value, rule, and an example that works.
"""

from __future__ import annotations

import os
import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import durationpy

from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.names import MONITOR, SCHEDULER_NAME, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DURATION_RULE = "must be a positive Go duration"
_PORT_RULE = "must be a TCP port, 0 to 65535"
_SHOWN = 80
"""Characters of a wrong value that an error repeats."""


class SettingsError(ValueError):
    """The operator's environment cannot be used; the text says which variable, why, and what would do."""


def setting(read: Callable[[str], Any], default: Any, rule: str, example: str) -> Any:
    """One variable: how its text is read (or refused, by ValueError), and the rule and example that an error quotes.

    `default` holds where the variable is not set or empty: a value, a function that finds one, or MISSING where it must
    be set.
    """
    told = {"read": read, "rule": rule, "example": example}
    if default is MISSING:
        return field(metadata=told)
    return field(default_factory=default, metadata=told) if callable(default) else field(default=default, metadata=told)


def _seconds(text: str) -> float:
    """Go duration ("15s", "1m30s", "400ms") to seconds."""
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


_port = _up_to(65535)
_percent = _up_to(100)


def _own_namespace() -> str:
    """The pod's own, as its service account's volume tells; outside a cluster, where the product is installed."""
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip() or SYSTEM_NAMESPACE
    except OSError:
        return SYSTEM_NAMESPACE


def _own_name() -> str:
    """Name this host, which in a pod is the pod."""
    return os.uname().nodename.lower()


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """What every long-running command reads. Durations are seconds here and Go durations in the environment."""

    scheduler_name: str = setting(
        _name, SCHEDULER_NAME, "must be a DNS subdomain, the schedulerName that our pods carry", "gpu-scheduler"
    )
    log_level: str = setting(_level, "INFO", "must be one of DEBUG, INFO, WARNING, ERROR", "INFO")
    http_port: int = setting(_port, 8080, _PORT_RULE, "8080")
    bind_address: str = setting(str, "", "must be an address of this host; empty means all", "127.0.0.1")
    gpu_scheduler_commit: str = setting(str, "unknown", "the commit this was built from", "0a1b2c3")

    def problems(self) -> Iterator[str]:
        """What is wrong with values that are right each by itself."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class LeaderSettings(CommonSettings):
    """What a command reads whose replicas have a leader: `gpu-scheduler controller` no more than this."""

    kubernetes_namespace: str = setting(
        _name, _own_namespace, "must be the namespace that holds the Lease and the settings", "gpu-scheduler-system"
    )
    pod_name: str = setting(
        str,
        _own_name,
        "must be this replica's name, part of the lease holder's identity",
        "gpu-scheduler-6d5f-x2x4z",
    )
    lease_duration: float = setting(_seconds, 15, _DURATION_RULE, "15s")
    renew_deadline: float = setting(_seconds, 10, _DURATION_RULE, "10s")
    retry_period: float = setting(_seconds, 2, _DURATION_RULE, "2s")
    # The API server sends a bookmark about every minute, so a quiet watch still speaks within this time.
    watch_idle_limit: float = setting(
        _seconds, 90, "must be a positive Go duration: a watch silent for so long is opened anew", "90s"
    )

    def problems(self) -> Iterator[str]:
        """A holder must have stopped before anybody else may take its lease."""
        if not self.retry_period * 1.5 < self.renew_deadline or not self.renew_deadline < self.lease_duration:
            told = f"{self.retry_period:g}s, {self.renew_deadline:g}s, {self.lease_duration:g}s"
            yield (
                f'cannot use RETRY_PERIOD, RENEW_DEADLINE, LEASE_DURATION "{told}": '
                "1.5 x retry < renew < lease must hold "
                "(example: RETRY_PERIOD=2s RENEW_DEADLINE=10s LEASE_DURATION=15s)"
            )


@dataclass(frozen=True, kw_only=True)
class RunSettings(LeaderSettings):
    """What `gpu-scheduler run` reads."""

    gpu_sharing: Literal["same-workload", "any", "none"] = setting(
        _one_of("same-workload", "any", "none"),
        "same-workload",
        "must be one of same-workload, any, none",
        "same-workload",
    )
    scheduling_strategy: Strategy = setting(  # noqa: RUF009 - it makes a field
        Strategy, Strategy.LEAST_UTILIZED, f"must be one of {', '.join(Strategy)}", "least_utilized"
    )
    gpu_utilization_goal: int = setting(
        _percent, 80, "must be a percentage, 0 to 100: GPUs that are busier get no pod by strategy", "80"
    )
    monitor_namespace: str = setting(
        _name, MONITOR, "must be the namespace of the monitors' Leases", "gpu-scheduler-monitor"
    )
    scheduling_interval: float = setting(_seconds, 5, _DURATION_RULE, "5s")
    pod_initial_backoff: float = setting(_seconds, 1, _DURATION_RULE, "1s")
    pod_max_backoff: float = setting(_seconds, 10, _DURATION_RULE, "10s")
    # Every change that could help wakes a pod; this is for the one that nobody thought of.
    pod_resync: float = setting(_seconds, 300, _DURATION_RULE, "5m")
    # A look at all pods at once, so not too often.
    audit_interval: float = setting(_seconds, 300, _DURATION_RULE, "5m")
    # Names of pods and of the GPUs they hold are nobody's business by default.
    debug_endpoints: bool = setting(
        _flag, False, "must be true or false: whether /debug/ledger tells who holds what", "true"
    )
    decision_journal: Path | None = setting(  # noqa: RUF009 - it makes a field
        Path,
        None,
        "must be a file that can be written: what is decided and by what, a JSON line each; empty means none",
        "/var/log/gpu-scheduler/journal",
    )

    def problems(self) -> Iterator[str]:
        """The first back-off must not be the longest."""
        yield from super().problems()
        if self.pod_initial_backoff > self.pod_max_backoff:
            told = f"{self.pod_initial_backoff:g}s, {self.pod_max_backoff:g}s"
            yield (
                f'cannot use POD_INITIAL_BACKOFF, POD_MAX_BACKOFF "{told}": the first must not exceed the second '
                "(example: POD_INITIAL_BACKOFF=1s POD_MAX_BACKOFF=10s)"
            )


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(CommonSettings):
    """What `gpu-scheduler webhook` reads."""

    webhook_port: int = setting(_port, 8443, _PORT_RULE, "8443")
    certificate_dir: Path = setting(  # noqa: RUF009 - it makes a field
        Path,
        Path("/etc/gpu-scheduler/tls"),
        "must be a directory with tls.crt and tls.key",
        "/etc/gpu-scheduler/tls",
    )
    client_ca: Path | None = setting(  # noqa: RUF009 - it makes a field
        Path,
        None,
        "must be a file of PEM certificates: who calls the webhook needs a certificate of theirs; empty means anybody",
        "/etc/gpu-scheduler/client-ca/ca.crt",
    )
    certificate_poll: float = setting(_seconds, 10, _DURATION_RULE, "10s")
    # Time for the endpoint's removal to reach every kube-proxy before the listener closes.
    drain_period: float = setting(_seconds, 3, _DURATION_RULE, "3s")


@dataclass(frozen=True, kw_only=True)
class MonitorSettings(CommonSettings):
    """What `gpu-scheduler monitor` reads."""

    node_name: str = setting(_name, MISSING, "must be the name of the node that this process runs on", "node1")
    kubernetes_namespace: str = setting(
        _name, _own_namespace, "must be the namespace that holds the nodes' Leases", "gpu-scheduler-monitor"
    )
    pod_name: str = setting(
        str, _own_name, "must be this pod's name, the holder of its node's Lease", "gpu-scheduler-monitor-x2x4z"
    )
    monitor_interval: float = setting(_seconds, 15, _DURATION_RULE, "15s")
    monitor_source: Literal["nvml", "simulated"] = setting(
        _one_of("nvml", "simulated"),
        "nvml",
        "must be nvml, the GPUs that are there, or simulated, those that a file declares",
        "nvml",
    )
    simulated_inventory: Path = setting(  # noqa: RUF009 - it makes a field
        Path,
        Path("/etc/gpu-scheduler/inventory/inventory.yaml"),
        "must be a YAML or JSON file: node to groups of GPUs",
        "/etc/gpu-scheduler/inventory/inventory.yaml",
    )
    gpu_utilization_goal: int = setting(
        _percent, 80, "must be a percentage, 0 to 100: it parts busy GPUs from others", "80"
    )


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
