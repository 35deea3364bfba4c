"""The environment, read once, becomes frozen Settings; nothing below the command line reads variables again.

A value that cannot be used stops the process with one sentence: variable, value, rule, and an example that works.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import durationpy
from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gpu_scheduler.names import SCHEDULER_NAME, SYSTEM_NAMESPACE

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class SettingsError(ValueError):
    """The operator's environment cannot be used; the text says which variable, why, and what would do."""


def _seconds(value: object) -> object:
    """Go duration ("15s", "1m30s", "400ms") to seconds; numbers pass for defaults written here."""
    if not isinstance(value, str):
        return value
    try:
        return float(durationpy.from_str(value).total_seconds())
    except (durationpy.DurationError, ValueError, OverflowError) as error:
        raise ValueError(str(error)) from error


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Port = Annotated[int, Field(ge=0, le=65535)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"],
    BeforeValidator(lambda value: value.upper() if isinstance(value, str) else value),
]

_DURATION_RULE = "must be a positive Go duration"
_PORT_RULE = "must be a TCP port, 0 to 65535"


def _own_namespace() -> str:
    """The pod's own, as its service account's volume tells; outside a cluster, where the product is installed."""
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip() or SYSTEM_NAMESPACE
    except OSError:
        return SYSTEM_NAMESPACE


def _own_name() -> str:
    """Name this host, which in a pod is the pod."""
    return os.uname().nodename.lower()


class CommonSettings(BaseSettings):
    """What every long-running command reads. A field's description is the rule that an error quotes."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    scheduler_name: Name = Field(
        default=SCHEDULER_NAME,
        description="must be a DNS subdomain, the schedulerName that our pods carry",
        examples=["gpu-scheduler"],
    )
    log_level: LogLevel = Field(
        default="INFO",
        description="must be one of DEBUG, INFO, WARNING, ERROR",
        examples=["INFO"],
    )
    http_port: Port = Field(default=8080, description=_PORT_RULE, examples=["8080"])
    bind_address: str = Field(
        default="", description="must be an address of this host; empty means all", examples=["127.0.0.1"]
    )
    gpu_scheduler_commit: str = Field(
        default="unknown", description="the commit this was built from", examples=["0a1b2c3"]
    )


class RunSettings(CommonSettings):
    """What `gpu-scheduler run` reads. Durations are seconds here and Go durations in the environment."""

    kubernetes_namespace: Name = Field(
        default_factory=_own_namespace,
        description="must be the namespace that holds the Lease",
        examples=["gpu-scheduler-system"],
    )
    pod_name: str = Field(
        default_factory=_own_name,
        description="must be this replica's name, part of the lease holder's identity",
        examples=["gpu-scheduler-6d5f-x2x4z"],
    )
    gpu_sharing: Literal["same-workload", "any", "none"] = Field(
        default="same-workload",
        description="must be one of same-workload, any, none",
        examples=["same-workload"],
    )
    scheduling_interval: Seconds = Field(default=5, description=_DURATION_RULE, examples=["5s"])
    pod_initial_backoff: Seconds = Field(default=1, description=_DURATION_RULE, examples=["1s"])
    pod_max_backoff: Seconds = Field(default=10, description=_DURATION_RULE, examples=["10s"])
    pod_resync: Seconds = Field(
        # Every change that could help wakes a pod; this is for the one that nobody thought of.
        default=300,
        description=_DURATION_RULE,
        examples=["5m"],
    )
    audit_interval: Seconds = Field(
        # A look at all pods at once, so not too often.
        default=300,
        description=_DURATION_RULE,
        examples=["5m"],
    )
    debug_endpoints: bool = Field(
        # Names of pods and of the GPUs they hold are nobody's business by default.
        default=False,
        description="must be true or false: whether /debug/ledger tells who holds what",
        examples=["true"],
    )
    lease_duration: Seconds = Field(default=15, description=_DURATION_RULE, examples=["15s"])
    renew_deadline: Seconds = Field(default=10, description=_DURATION_RULE, examples=["10s"])
    retry_period: Seconds = Field(default=2, description=_DURATION_RULE, examples=["2s"])
    watch_idle_limit: Seconds = Field(
        # The API server sends a bookmark about every minute, so a quiet watch still speaks within this time.
        default=90,
        description="must be a positive Go duration: a watch silent for so long is opened anew",
        examples=["90s"],
    )

    @model_validator(mode="after")
    def _backoff_grows(self) -> RunSettings:
        """Make sure that the first back-off is not the longest."""
        if self.pod_initial_backoff > self.pod_max_backoff:
            told = f"{self.pod_initial_backoff:g}s, {self.pod_max_backoff:g}s"
            message = (
                f'cannot use POD_INITIAL_BACKOFF, POD_MAX_BACKOFF "{told}": the first must not exceed the second '
                "(example: POD_INITIAL_BACKOFF=1s POD_MAX_BACKOFF=10s)"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _lease_times_nest(self) -> RunSettings:
        """Make sure that a holder has stopped binding before anybody else may take its lease."""
        if not self.retry_period * 1.5 < self.renew_deadline or not self.renew_deadline < self.lease_duration:
            told = f"{self.retry_period:g}s, {self.renew_deadline:g}s, {self.lease_duration:g}s"
            message = (
                f'cannot use RETRY_PERIOD, RENEW_DEADLINE, LEASE_DURATION "{told}": '
                "1.5 x retry < renew < lease must hold "
                "(example: RETRY_PERIOD=2s RENEW_DEADLINE=10s LEASE_DURATION=15s)"
            )
            raise ValueError(message)
        return self


class WebhookSettings(CommonSettings):
    """What `gpu-scheduler webhook` reads."""

    webhook_port: Port = Field(default=8443, description=_PORT_RULE, examples=["8443"])
    certificate_dir: Path = Field(
        default=Path("/etc/gpu-scheduler/tls"),
        description="must be a directory with tls.crt and tls.key",
        examples=["/etc/gpu-scheduler/tls"],
    )
    certificate_poll: Seconds = Field(default=10, description=_DURATION_RULE, examples=["10s"])
    drain_period: Seconds = Field(
        # Time for the endpoint's removal to reach every kube-proxy before the listener closes.
        default=3,
        description=_DURATION_RULE,
        examples=["3s"],
    )


AnySettings = TypeVar("AnySettings", bound=CommonSettings)


def read_settings(kind: type[AnySettings]) -> AnySettings:
    """Read `kind` from the environment; raises SettingsError with one line per bad variable."""
    try:
        return kind()
    except ValidationError as error:
        raise SettingsError("\n".join(_sentences(kind, error))) from error


def _sentences(kind: type[CommonSettings], error: ValidationError) -> list[str]:
    sentences = []
    for problem in error.errors(include_url=False):
        field = str(problem["loc"][0]) if problem["loc"] else ""
        if field not in kind.model_fields:
            sentences.append(problem["msg"].removeprefix("Value error, "))
            continue
        info = kind.model_fields[field]
        variable = field.upper()
        example = (info.examples or [""])[0]
        shown = str(problem["input"])[:80]
        sentences.append(f'cannot use {variable} "{shown}": {info.description} (example: {variable}={example})')
    return sentences
