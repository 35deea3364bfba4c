"""Connects a verb to the cluster: chooses kubeconfig and namespace, and reports a failed connection in one sentence."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.cli.options import FailedError, RefusedInputError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.kube.http.client import ApiClient, NoResponseError

_HOME: Final = Path("~/.kube/config")
_EXAMPLE: Final = "example: gpu-scheduler status --kubeconfig ~/.kube/config --context kind-gpu-scheduler"


@asynccontextmanager
async def reached(options: Options) -> AsyncIterator[ApiClient]:
    """Yield a connection, and close it at the end.

    FailedError if the cluster refuses a list or does not answer; RefusedInputError if the kubeconfig cannot be used.
    """
    from gpu_scheduler.kube.config.client_config import ClientConfigError
    from gpu_scheduler.kube.http.client import NoResponseError, connect
    from gpu_scheduler.kube.lists import UnlistedError
    from gpu_scheduler.process.lifecycle import own_version

    agent = f"{names.SCHEDULER_NAME}/{own_version()}"
    try:
        api = await connect(kubeconfig_of(options.kubeconfig, os.environ), options.context, user_agent=agent)
    except ClientConfigError as error:
        raise RefusedInputError(str(error)) from error
    try:
        yield api
    except NoResponseError as error:
        raise FailedError(_silence(api, error)) from error
    except UnlistedError as error:
        if error.invalid:
            raise RefusedInputError(f"{error}; correct the selector (example: -l app=train)") from error
        raise FailedError(f"{error}; ask for the right, or use another context ({_EXAMPLE})") from error
    finally:
        await api.close()


def kubeconfig_of(named: str | None, environment: Mapping[str, str]) -> str | None:
    """Return `named`, else KUBECONFIG, else ~/.kube/config if it exists, else None inside a pod.

    RefusedInputError if there is none of them.
    """
    own = _HOME.expanduser()
    chosen = named or environment.get("KUBECONFIG") or (str(own) if own.is_file() else None)
    if chosen is None and "KUBERNETES_SERVICE_HOST" not in environment:
        raise RefusedInputError(
            f"cannot find a cluster: KUBECONFIG is not set, and there is no {_HOME}; name a file ({_EXAMPLE})"
        )
    return chosen


def namespace_of(options: Options, api: ApiClient) -> str | None:
    """Return the namespace of the options, else of the context, else "default"; None for all namespaces."""
    return None if options.all_namespaces else options.namespace or api.namespace or "default"


def _silence(api: ApiClient, error: NoResponseError) -> str:
    way = f" (context {api.context})" if api.context else ""
    return (
        f"cannot reach the API server {api.host}{way}: {_cause(error)}; "
        f"see whether it runs, or choose another cluster ({_EXAMPLE})"
    )


def _cause(error: NoResponseError) -> str:
    """Return the cause of a failed connection in a few words."""
    cause = error.__cause__
    if isinstance(cause, TimeoutError):
        return "it does not answer in time"
    # Errors of TLS and of name resolution are OSErrors too, but their numbers are not the operating system's.
    number = cause.errno if isinstance(cause, ConnectionError) or type(cause) is OSError else None
    return os.strerror(number).lower() if number else str(cause or error)
