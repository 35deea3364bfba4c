"""Shell completion for `gpu-scheduler` and for `kubectl gpu-scheduler`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler.names import SCHEDULER_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

# The environment variable in which a shell's completion script asks for words.
_VARIABLE: Final = f"_{SCHEDULER_NAME}_complete".replace("-", "_").upper()
# Directives that kubectl reads after the words: complete file names, or the words only.
_FILES, _WORDS_ONLY = ":0", ":4"


@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), help="The shell that reads it.")
def completion(shell: str) -> None:
    """Print a shell's completion script.

    Bash: source <(gpu-scheduler completion bash). Zsh: the same. Fish: gpu-scheduler completion fish | source.
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    kind = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    script = kind(click.get_current_context().find_root().command, {}, SCHEDULER_NAME, _VARIABLE).source()
    # click's script for fish would cut words at commas, which those of --nodes have.
    script = script.replace('string split ","', 'string split --max 1 ","')
    sys.stdout.write(script.strip("\n") + "\n")


def kubectl_words(app: click.Command, words: Sequence[str]) -> str:
    """Return the completions of the last of `words` for kubectl: one word per line, then a directive."""
    from click.shell_completion import ShellComplete

    *before, last = words or [""]
    items = ShellComplete(app, {}, SCHEDULER_NAME, _VARIABLE).get_completions(before, last)
    plain = [item.value for item in items if item.type == "plain"]
    return "\n".join([*plain, _WORDS_ONLY if len(plain) == len(items) else _FILES])
