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

from gpu_scheduler.cli import live_names
from gpu_scheduler.core.text import printable, quote
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
    JSONPATH = "jsonpath"
    CUSTOM_COLUMNS = "custom-columns"


# The formats whose word is followed by an expression.
_WITH_EXPRESSION: Final = {
    Output.JSONPATH: "-o jsonpath='{.items[*].name}'",
    Output.CUSTOM_COLUMNS: "-o custom-columns=NAME:.name,NODE:.node",
}
FORMATS: Final = tuple(f"{word}=" if word in _WITH_EXPRESSION else str(word) for word in Output)
"""The formats as they are written."""


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
    expression: str = ""
    """What follows the output `jsonpath=` or `custom-columns=`."""
    selector: str = ""
    field_selector: str = ""
    sort_by: str = ""
    watch: bool = False


# The annotation of each option, by the field of Options that it fills.
SHARED: Final[dict[str, Any]] = {
    "namespace": Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="Namespace; the context's otherwise.", autocompletion=live_names.namespaces
        ),
    ],
    "all_namespaces": Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")],
    "kubeconfig": Annotated[
        str | None,
        typer.Option(help="File that leads to the cluster; otherwise KUBECONFIG, ~/.kube/config, or the pod's own."),
    ],
    "context": Annotated[
        str | None,
        typer.Option(help="Context of the kubeconfig; its current one otherwise.", autocompletion=live_names.contexts),
    ],
    "system_namespace": Annotated[str, typer.Option(metavar="NAMESPACE", help="Where the scheduler is installed.")],
    "output": Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT",
            help=f"What is printed: {', '.join(FORMATS)}.",
            autocompletion=lambda: FORMATS,
        ),
    ],
    "no_headers": Annotated[bool, typer.Option("--no-headers", help="Print no column titles.")],
    "log_level": Annotated[LogLevel, typer.Option(help="Least level of log lines.", case_sensitive=False)],
}


# The options of the verbs that list objects, likewise.
OF_LISTINGS: Final[dict[str, Any]] = {
    "selector": Annotated[
        str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Only objects with these labels.")
    ],
    "field_selector": Annotated[
        str, typer.Option(metavar="SELECTOR", help="Only objects with these fields, as the API server selects them.")
    ],
    "sort_by": Annotated[str, typer.Option(metavar="PATH", help="Sort by a field of the JSON (example: .createdAt).")],
    "watch": Annotated[bool, typer.Option("--watch", "-w", help="Print each change too; Ctrl-C ends it.")],
}


def verb(function: Callable[..., Coroutine[Any, Any, int]], *, lists: bool = False) -> Callable[..., None]:
    """Return a typer command for `function(options, …)`, with the shared options in addition to its own.

    `lists`: it has the options of listings too. The process exits with the code that `function` returns, or with the
    code of its FailedError.
    """
    # The function's module may import Options only for type checking, so the name is given here.
    signature = inspect.signature(function, eval_str=True, locals={"Options": Options})
    own = [each for each in signature.parameters.values() if each.name != "options"]
    fresh = Options()
    general = {**SHARED, **(OF_LISTINGS if lists else {})}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(fresh, name), annotation=annotation)
        for name, annotation in general.items()
    ]

    def command(**given: Any) -> None:
        try:
            output, expression = read_output(given.pop("output"))
        except RefusedInputError as error:
            raise typer.Exit(print_error(error)) from error
        named = {name: given.pop(name) for name in general if name in given}
        options = Options(**named, output=output, expression=expression)
        raise typer.Exit(run_verb(lambda: function(options, **given), options.log_level))

    parameters = [*own, *shared]
    command.__doc__ = function.__doc__
    command.__annotations__.update({each.name: each.annotation for each in parameters})
    vars(command)["__signature__"] = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    return command


def read_output(text: str) -> tuple[Output, str]:
    """Read `--output`: return the format, and the expression that follows its `=`, if any.

    RefusedInputError if it is no format, or its expression is missing.
    """
    word, equals, expression = text.partition("=")
    output = Output(word.lower()) if word.lower() in tuple(Output) else None
    if output is None or (equals and output not in _WITH_EXPRESSION):
        raise RefusedInputError(
            f"cannot print {quote(text)}: the output must be one of {', '.join(FORMATS)} (example: -o wide)"
        )
    if output in _WITH_EXPRESSION and not expression:
        raise RefusedInputError(
            f"cannot print {quote(text)}: an expression must follow (example: {_WITH_EXPRESSION[output]})"
        )
    return output, expression


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
