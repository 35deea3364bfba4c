"""Replaces the parts of a command's output that differ between clusters, and nothing else."""

from __future__ import annotations

import re
from typing import Final

_UID: Final = r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
# Kubernetes' alphabet for suffixes of names: a template hash of up to 10 characters, then a pod's 5 characters.
_SAFE: Final = "[bcdfghjklmnpqrstvwxz2456789]"

_MASKS: Final = (
    (_UID, "UID"),
    (r"\bsha256:[0-9a-f]{12,64}\b", "IMAGE-ID"),
    # Image tags are hashes of the content.
    (r"(gpu-scheduler(?:-check)?:)[\w.-]+", r"\1TAG"),
    (r"\b[0-9a-f]{40}(?:-dirty)?\b", "COMMIT"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}\b", "ADDRESS"),
    (r"\bgpu-scheduler-test-(control-plane|worker\d*)\b", r"gpu-scheduler-\1"),
    (rf"-{_SAFE}{{8,10}}-{_SAFE}{{5}}\b", "-HASH"),
    (rf"\b(kube-proxy|kindnet)-{_SAFE}{{5}}\b", r"\1-HASH"),
    # RESTARTS, with the age of the last one, then AGE, as kubectl's table shows them after the status.
    (r"(Running|Completed)\s+\d+(?: \([^)]* ago\))?\s+(?:\d+[dhms])+", r"\1 RESTARTS AGE"),
    (r"\b(Ready)(\s.*?)\s(?:\d+[dhms])+\b", r"\1\2 AGE"),
    # kube-scheduler chooses at random among equal nodes for the pods that it schedules.
    (r"((?:gpu-scheduler|gpu-scheduler-webhook|gpu-scheduler-controller|coredns)-HASH .*ADDRESS\s+)\S+", r"\1ANY-NODE"),
)


def mask(text: str) -> str:
    """Return the text with a placeholder for each part that differs."""
    for pattern, word in _MASKS:
        text = re.sub(pattern, word, text)
    return text
