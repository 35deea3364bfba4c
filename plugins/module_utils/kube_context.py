"""The cluster of a kubeconfig's context, for the modules that look before a run. A failure has its remedy with it."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import yaml
from ansible.module_utils.kubectl import Cluster, ClusterError  # type: ignore[import-untyped]  # ansible.cfg says where

Json = dict[str, Any]

REQUEST_TIMEOUT: Final = 15
"""Seconds. Long enough for a page of nodes behind a slow link, short enough for a wrong address."""

_WORDS: Final = {
    r"The connection to the server \S+ was refused.*": "connection refused",
    r"You must be logged in to the server \(.*?(\w+)\)": r"\1",
    r'Unable to connect to the server: |\berror: |error when creating "[^"]*": ': "",
}
"""What kubectl says, and what a sentence has in its place."""
_OWN: Final = "example: kubectl --kubeconfig={file} --context={context} get nodes"
_SERVER: Final = "The API server {server} of kube_context '{context}'"
_USE: Final = "Cannot use kube_context '{context}' of kubeconfig {file}"
_LOG_IN: Final = f"log in anew with your provider's command, or set kubeconfig to a file with valid ones ({_OWN})."
_FAILURES: Final = {
    "^cannot run": "{said}: install kubectl, or set kubectl_program to where it is (example: -e"
    " kubectl_program=/usr/local/bin/kubectl).",
    # Without credentials kubectl asks for a name.
    "^error: EOF$": f"{_SERVER} does not accept the credentials in kubeconfig {{file}} (it has none): {_LOG_IN}",
    "Unauthorized|system:anonymous|getting credentials": f"{_SERVER} does not accept the credentials in kubeconfig"
    f" {{file}} ({{said}}): they are wrong or have expired, so {_LOG_IN}",
    r"\(Forbidden\)": "The user of kube_context '{context}' lacks a right: {said}.",
    "Error from server": f"{_SERVER} answers {{said}}: see whether it is well, then run this again ({_OWN}).",
    "no answer within": f"{_USE} ({{said}}): a request takes {REQUEST_TIMEOUT} s at most, so the program that logs in"
    f" may wait for you: log in anew, or correct the file ({_OWN}).",
    "x509: |tls: |HTTPS client": f"{_SERVER} cannot be trusted ({{said}}): correct certificate-authority-data, server"
    " or tls-server-name of its cluster in kubeconfig {file} (example: kubectl config set-cluster NAME"
    " --certificate-authority=FILE --embed-certs).",
    "connect|dial|deadline|imeout": f"{_SERVER} does not answer ({{said}}): see whether it runs and this host reaches"
    f" it (network, VPN), or set kube_context to another ({_OWN}).",
    "": f"{_USE} ({{said}}): log in anew, or correct the file ({_OWN}).",
}
"""What kubectl says, and the sentence for it: the first that matches."""
_ANEW: Final = "have your provider's command write it anew"
_ANOTHER: Final = "set kubeconfig to the file that leads to your cluster (example: -e kubeconfig=$HOME/.kube/config)"


class Context(Cluster):  # type: ignore[misc]  # its base is loaded by Ansible
    """One API server, as a context of a kubeconfig names it."""

    def __init__(self, program: str, kubeconfig: str, context: str) -> None:
        """Raise ClusterError where the kubeconfig cannot be read or has not this context."""
        super().__init__(
            [program, f"--kubeconfig={kubeconfig}", f"--context={context}", f"--request-timeout={REQUEST_TIMEOUT}s"]
        )
        self._named = {"file": kubeconfig, "context": context, "server": server_of(kubeconfig, context)}

    def failure(self, text: str) -> ClusterError:
        """Return the error for what kubectl says, as a sentence."""
        said = " ".join(text.split())[:300]
        for pattern, words in _WORDS.items():
            said = re.sub(pattern, words, said)
        sentence = next(sentence for pattern, sentence in _FAILURES.items() if re.search(pattern, text))
        return ClusterError(sentence.format(**self._named, said=said))


def server_of(kubeconfig: str, context: str) -> str:
    """Return the server of a context. Raise ClusterError where the file is no kubeconfig, or has not this context."""
    try:
        with open(kubeconfig, encoding="utf-8") as opened:  # noqa: PTH123 - a path as Ansible gives it
            found = yaml.safe_load(opened)
    except OSError as error:
        raise ClusterError(
            f"Cannot read kubeconfig '{kubeconfig}' ({os.strerror(error.errno or 0).lower()}): {_ANOTHER}."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())[:300]
        raise ClusterError(
            f"Cannot read kubeconfig '{kubeconfig}' as YAML ({said}): {_ANEW}, or {_ANOTHER}."
        ) from error
    contexts, clusters = _named(found, "context"), _named(found, "cluster")
    if not contexts:
        raise ClusterError(f"Cannot use kubeconfig '{kubeconfig}', which has no contexts: {_ANEW}, or {_ANOTHER}.")
    if context not in contexts:
        raise ClusterError(
            f"Cannot find kube_context '{context}' in kubeconfig {kubeconfig}, which has {', '.join(contexts)}: name"
            f" one of them (example: -e kube_context={next(iter(contexts))}), or set kubeconfig to another file."
        )
    return str(clusters.get(str(contexts[context].get("cluster")), {}).get("server", "without an address"))


def _named(found: object, what: str) -> dict[str, Json]:
    """Return the entries of one list of a kubeconfig by their names."""
    listed = found.get(f"{what}s") if isinstance(found, dict) else None
    return {str(each.get("name", "")): each.get(what) or {} for each in listed or [] if isinstance(each, dict)}
