"""Reads from an API server, for the modules that check an existing cluster. A failure is a sentence with its remedy.

Requests have time-outs, and nothing is changed. Objects are plain data: of a Secret only the metadata is asked for.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Json = dict[str, Any]

CONNECT_TIMEOUT: Final = 5
"""Seconds. Long enough for a cluster behind a slow link, short enough for a wrong address."""
READ_TIMEOUT: Final = 15
LOGIN_TIMEOUT: Final = 60
"""Seconds for the program that a kubeconfig may name to log in."""
PARALLEL: Final = 8
PAGE: Final = 500
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_LOWEST_FAILURE: Final = 400
_CAUSES: Final = (
    r"certificate verify failed: [^(\"']+",
    r"\[SSL[^\]]*\] [^(\"']+",
    "Connection refused|timed out|Name or service not known|nodename nor servname[^')]*|No route to host",
)
_ANEW: Final = "have your provider's command write it anew"
_ANOTHER: Final = "set kubeconfig to the file that leads to your cluster (example: -e kubeconfig=$HOME/.kube/config)"
_OWN: Final = "example: kubectl --kubeconfig={file} --context={context} get nodes"


class ClusterError(Exception):
    """What failed and what to do, as one sentence for the user."""


class ForbiddenError(ClusterError):
    """The user has not the right to ask."""


def in_parallel(call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Return the results in the order of the items."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(call, items))


class Cluster:
    """One API server, as a context of a kubeconfig names it."""

    def __init__(self, kubeconfig: str, context: str) -> None:
        """Read the kubeconfig, and log in where it names a program for that. Raise ClusterError with the remedy."""
        self._file, self._context = kubeconfig, context
        check_kubeconfig(kubeconfig, context)
        # Imported here, so that a missing client is reported like any other failure.
        try:
            from kubernetes import config  # noqa: PLC0415 - see above
            from kubernetes.client import Configuration  # noqa: PLC0415 - see above
        except ImportError as error:
            raise ClusterError(
                f"Cannot import the Python client of Kubernetes ({error}): make the environment (.venv) anew with"
                " `make env-deploy`."
            ) from error
        settings = Configuration()
        # A second try hides a lost packet; more would only make a wrong address take longer.
        settings.retries = 1
        with _logged() as complaints, _limited(LOGIN_TIMEOUT):
            try:
                config.load_kube_config(kubeconfig, context, client_configuration=settings, persist_config=False)
            except Exception as error:
                raise ClusterError(
                    f"Cannot use kube_context '{context}' of kubeconfig {kubeconfig} ({_words(error)}): log in anew, or"
                    f" correct the file ({self._example})."
                ) from error
        self._login = _words("; ".join(complaints))
        from kubernetes.client import ApiClient  # noqa: PLC0415 - see above

        self._api = ApiClient(settings)
        self.server: str = settings.host

    @property
    def _example(self) -> str:
        return _OWN.format(file=self._file, context=self._context)

    def get(self, path: str, *, accept: str = "application/json", **query: str) -> Json | None:
        """Return the object at this path; None where there is none, or no such kind."""
        return self._call("GET", path, None, accept, query)

    def create(self, path: str, body: Json) -> Json:
        """Return the answer to a review."""
        return self._call("POST", path, body, "application/json", {}) or {}

    def items(self, path: str, **query: str) -> Iterator[Json]:
        """Yield every object of a collection, page by page."""
        query["limit"] = str(PAGE)
        while True:
            page = self.get(path, **query) or {"items": [], "metadata": {}}
            yield from page["items"]
            if not page["metadata"].get("continue"):
                return
            query["continue"] = page["metadata"]["continue"]

    def _call(self, method: str, path: str, body: Json | None, accept: str, query: dict[str, str]) -> Json | None:
        import urllib3  # noqa: PLC0415 - the client brings it

        address = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": accept} | ({"Content-Type": "application/json"} if body else {})
        request = self._api.param_serialize(
            method, address, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = self._api.call_api(*request, _request_timeout=(CONNECT_TIMEOUT, READ_TIMEOUT))
            text = answer.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterError(self._unreachable(error)) from error
        return self._answer(method, path, int(answer.status), text)

    def _answer(self, method: str, path: str, status: int, text: bytes) -> Json | None:
        if status == _NOT_FOUND:
            return None
        try:
            found: Json = json.loads(text)
        except ValueError:
            found = {"message": " ".join(text.decode(errors="replace").split())[:200]}
        message = str(found.get("message", ""))
        if status == _UNAUTHORIZED or (status == _FORBIDDEN and "system:anonymous" in message):
            raise ClusterError(self._refused(status))
        if status == _FORBIDDEN:
            raise ForbiddenError(f"The user of kube_context '{self._context}' lacks a right: {message}.")
        if status >= _LOWEST_FAILURE or not isinstance(found, dict):
            raise ClusterError(
                f"{self._named} answers {status} to {method} {path} ({message}): see whether it is well, then run this"
                f" again ({self._example})."
            )
        return found

    @property
    def _named(self) -> str:
        return f"The API server {self.server} of kube_context '{self._context}'"

    def _refused(self, status: int) -> str:
        login = f"; logging in failed: {self._login}" if self._login else ""
        return (
            f"{self._named} does not accept the credentials in kubeconfig {self._file} ({status}{login}): they are"
            " wrong or have expired, so log in anew with your provider's command, or set kubeconfig to a file with"
            f" valid ones ({self._example})."
        )

    def _unreachable(self, error: Exception) -> str:
        text = _words(error)
        causes = (found for pattern in _CAUSES if (found := re.search(pattern, text)))
        cause = next(causes, None)
        reason = cause[0].strip().lower() if cause else text
        if re.search(r"certificate|SSL|TLS", text):
            return (
                f"{self._named} cannot be trusted ({reason}): correct certificate-authority-data, server or"
                f" tls-server-name of its cluster in kubeconfig {self._file} (example: kubectl config set-cluster NAME"
                " --certificate-authority=FILE --embed-certs)."
            )
        return (
            f"{self._named} does not answer ({reason}): see whether it runs and this host reaches it (network, VPN), or"
            f" set kube_context to another ({self._example})."
        )


def check_kubeconfig(kubeconfig: str, context: str) -> None:
    """Raise ClusterError where the file is missing or no kubeconfig, or has not this context."""
    import yaml  # noqa: PLC0415 - the client of Kubernetes needs it too

    try:
        with open(kubeconfig, encoding="utf-8") as opened:  # noqa: PTH123 - a path as Ansible gives it
            found = yaml.safe_load(opened)
    except OSError as error:
        raise ClusterError(
            f"Cannot read kubeconfig '{kubeconfig}' ({os.strerror(error.errno or 0).lower()}): {_ANOTHER}."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ClusterError(
            f"Cannot read kubeconfig '{kubeconfig}' as YAML ({_words(error)}): {_ANEW}, or {_ANOTHER}."
        ) from error
    listed = found.get("contexts") if isinstance(found, dict) else None
    names = [str(each.get("name", "")) for each in listed or [] if isinstance(each, dict)]
    if not names:
        raise ClusterError(f"Cannot use kubeconfig '{kubeconfig}', which has no contexts: {_ANEW}, or {_ANOTHER}.")
    if context not in names:
        raise ClusterError(
            f"Cannot find kube_context '{context}' in kubeconfig {kubeconfig}, which has {', '.join(names)}: name one"
            f" of them (example: -e kube_context={names[0]}), or set kubeconfig to another file."
        )


def _words(error: object) -> str:
    """Return an error's text on one line, short enough for a sentence."""
    return " ".join(str(error).split())[:300]


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in this thread when the time is over: a program that logs in may wait for a person."""

    def expire(*_: object) -> None:
        raise TimeoutError(f"logging in took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collect what the client only logs: that the program that logs in has failed."""
    complaints: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(record.getMessage())

    collector = Collector(logging.ERROR)
    logging.getLogger().addHandler(collector)
    try:
        yield complaints
    finally:
        logging.getLogger().removeHandler(collector)
