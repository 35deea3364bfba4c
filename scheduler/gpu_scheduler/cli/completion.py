"""Completion of words in a shell, for the command itself and as kubectl's plugin."""

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
"""By which a shell's function asks for words."""

# What kubectl is told after the words: whether file names are to be offered too.
_FILES_TOO, _WORDS_ONLY = ":0", ":4"


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
    """Let typer answer where a shell asks; nobody else pays for it."""
    if VARIABLE in environment:
        from typer import completion as typers

        typers.completion_init()  # type: ignore[attr-defined]


def kubectl_words(main: Callable[[], None], words: Sequence[str]) -> str:
    """What kubectl offers for the last of `words`: a word a line, then its directive."""
    given = words or [""]
    os.environ |= {
        VARIABLE: "complete_bash",
        "COMP_WORDS": shlex.join((SCHEDULER_NAME, *given)),
        "COMP_CWORD": str(len(given)),
    }
    with redirect_stdout(StringIO()) as said, suppress(SystemExit):
        main()
    found = said.getvalue().split()
    return "\n".join([*found, _WORDS_ONLY if found else _FILES_TOO])
