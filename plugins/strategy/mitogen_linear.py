"""Ansible's strategy `linear`, with the modules of all tasks in one interpreter, by Mitogen.

Ansible starts an interpreter for each task, which compiles the module and imports the client of Kubernetes anew: half a
second of each task that asks the API server.
"""

from __future__ import annotations

import gc
import getpass
from typing import Any

import ansible.collections.list
import ansible_mitogen.affinity
import ansible_mitogen.strategy
from ansible_mitogen.loaders import strategy_loader

_Linear: Any = strategy_loader.get("linear", class_only=True)

# Mitogen keeps a processor for itself and allows what it starts the others alone: of two, a build would have one.
ansible_mitogen.affinity.policy = ansible_mitogen.affinity.Policy()

# Each task is a fork of this process, and each fork would list a hundred collections anew, to find its own.
_COLLECTIONS = tuple(ansible.collections.list.list_collection_dirs())
ansible.collections.list.list_collection_dirs = lambda *_, **__: _COLLECTIONS

# A run makes many small values and few cycles: the collector took a sixth of its time.
gc.freeze()
gc.set_threshold(100_000)


class StrategyModule(ansible_mitogen.strategy.StrategyMixin, _Linear):
    """See the module."""

    def run(self, iterator: Any, play_context: Any, result: int = 0) -> int:
        """Run the play. A user who is root already becomes root without sudo, which a bare machine has not."""
        play_context.remote_user = play_context.remote_user or getpass.getuser()
        status: int = super().run(iterator, play_context, result)
        return status
