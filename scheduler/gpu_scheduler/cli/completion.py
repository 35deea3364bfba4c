"""Shell completion for `gpu-scheduler` and for `kubectl gpu-scheduler`."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from gpu_scheduler.names import SCHEDULER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

VARIABLE: Final = f"_{SCHEDULER_NAME}_complete".replace("-", "_").upper()
"""Environment variable in which the shell's completion function asks for words."""

# Directives that kubectl reads after the words: complete file names too, or the words only.
_FILES_TOO, _WORDS_ONLY = ":0", ":4"
_NAME_OPTIONS: Final = frozenset({"-n", "--namespace", "--context", "--nodes"})
_NAME_VERBS: Final = frozenset({"nodes", "health", "workloads"})


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell that reads it.")],
) -> None:
    """Print a shell's completion script.

    Bash: source <(gpu-scheduler completion bash). Zsh: the same. Fish: gpu-scheduler completion fish | source.
    """
    from typer import completion as typers

    script = typers.get_completion_script(  # type: ignore[attr-defined]
        prog_name=SCHEDULER_NAME, complete_var=VARIABLE, shell=shell
    )
    sys.stdout.write(script.strip("\n") + "\n")


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set up typer's completion if a shell asks for words; other calls do not import it."""
    if VARIABLE in environment:
        from typer import completion as typers

        typers.completion_init()  # type: ignore[attr-defined]


def kubectl_words(main: Callable[[], None], words: Sequence[str]) -> str:
    """Return the completions of the last of `words` for kubectl: one word per line, then a directive."""
    given = words or [""]
    os.environ |= {
        VARIABLE: "complete_bash",
        "COMP_WORDS": shlex.join((SCHEDULER_NAME, *given)),
        "COMP_CWORD": str(len(given)),
    }
    with redirect_stdout(StringIO()) as output, suppress(SystemExit):
        main()
    found = output.getvalue().split()
    return "\n".join([*found, _WORDS_ONLY if found or _takes_names(given) else _FILES_TOO])


def _takes_names(words: Sequence[str]) -> bool:
    """Whether the last word is a name of something in the cluster, so that no file name suits."""
    option = words[-2] if len(words) > 1 else ""
    return option in _NAME_OPTIONS or (words[0] in _NAME_VERBS and len(words) > 1 and not option.startswith("--"))
