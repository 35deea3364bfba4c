"""Options, errors and exit codes that all verbs share.

This module must import nothing slow, because every `--help` loads it.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

import typer

from gpu_scheduler.core.text import printable
from gpu_scheduler.names import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

FAILED: Final = 1
USAGE: Final = 2


class Output(StrEnum):
    """The formats of `--output`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class FailedError(Exception):
    """The command failed; the text is one sentence. The process exits with `code`."""

    code = FAILED


class RefusedInputError(FailedError):
    """The input is invalid; the text is one sentence: "cannot", the value, the rule, an example."""

    code = USAGE


@dataclass(frozen=True, slots=True)
class Options:
    """The options of every verb."""

    namespace: str | None = None
    all_namespaces: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    system_namespace: str = SYSTEM_NAMESPACE
    output: Output = Output.TABLE
    no_headers: bool = False
    log_level: LogLevel = "WARNING"


# The annotation of each option, by the field of Options that it fills.
SHARED: Final[dict[str, Any]] = {
    "namespace": Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; the context's otherwise.")],
    "all_namespaces": Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")],
    "kubeconfig": Annotated[
        str | None,
        typer.Option(help="File that leads to the cluster; otherwise KUBECONFIG, ~/.kube/config, or the pod's own."),
    ],
    "context": Annotated[str | None, typer.Option(help="Context of the kubeconfig; its current one otherwise.")],
    "system_namespace": Annotated[str, typer.Option(metavar="NAMESPACE", help="Where the scheduler is installed.")],
    "output": Annotated[Output, typer.Option("--output", "-o", help="What is printed.", case_sensitive=False)],
    "no_headers": Annotated[bool, typer.Option("--no-headers", help="Print no column titles.")],
    "log_level": Annotated[LogLevel, typer.Option(help="Least level of log lines.", case_sensitive=False)],
}


def verb(function: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., None]:
    """Return a typer command for `function(options, …)`, with the shared options in addition to its own.

    The process exits with the code that `function` returns, or with the code of its FailedError.
    """
    # The function's module may import Options only for type checking, so the name is given here.
    signature = inspect.signature(function, eval_str=True, locals={"Options": Options})
    own = [each for each in signature.parameters.values() if each.name != "options"]
    fresh = Options()
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(fresh, name), annotation=annotation)
        for name, annotation in SHARED.items()
    ]

    def command(**given: Any) -> None:
        options = Options(**{name: given.pop(name) for name in SHARED})
        raise typer.Exit(run_verb(lambda: function(options, **given), options.log_level))

    parameters = [*own, *shared]
    command.__doc__ = function.__doc__
    command.__annotations__.update({each.name: each.annotation for each in parameters})
    vars(command)["__signature__"] = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    return command


def run_command(app: typer.Typer, name: str) -> NoReturn:
    """Run the command line with `app` and exit; `name` is the command as the user called it.

    If the command line cannot be parsed, print one sentence.
    """
    try:
        code = app(prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        called = context.command_path if context else name
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        # A call without a command has the whole help text as its message.
        if message.startswith("Usage: "):
            print(message, file=sys.stderr)  # noqa: T201 - several lines
        else:
            print_message(f"cannot run {called}: {message[:1].lower()}{message[1:]} (example: {called} --help)")
        code = error.exit_code
    sys.exit(code)


def run_verb(function: Callable[[], Coroutine[Any, Any, int]], level: LogLevel = "WARNING") -> int:
    """Run `function` with log lines from `level` on; return the exit code."""
    # The process lives for about a second, so collecting garbage is not worth its time.
    gc.disable()
    from gpu_scheduler.process.logs import set_up_logging

    set_up_logging(level)
    try:
        return asyncio.run(function())
    except FailedError as error:
        return print_error(error)


def print_error(error: FailedError) -> int:
    """Print the error's sentence on standard error; return its exit code."""
    print_message(str(error))
    return error.code


def warn(unread: Iterable[str]) -> None:
    """Print what the user may not read, so that the answer does not seem to be complete. Empty texts say nothing."""
    for sentence in dict.fromkeys(filter(None, unread)):
        print_message(f"Warning: {sentence}")


def print_message(text: str) -> None:
    """Print one line on standard error, printable whatever it quotes."""
    print(printable(text), file=sys.stderr)  # noqa: T201 - whoever called this reads standard error; a log line would bury it
