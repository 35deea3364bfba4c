"""What all verbs that ask the cluster have in common: options, errors, and how they end.

Nothing heavy is imported here: every `--help` pays for it.
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

from gpu_scheduler.names import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

FAILED: Final = 1
USAGE: Final = 2


class Output(StrEnum):
    """What is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class FailedError(Exception):
    """What was asked for did not happen; one sentence."""

    code = FAILED


class RefusedInputError(FailedError):
    """What was asked for makes no sense; one sentence: cannot, the value, the rule, an example."""

    code = USAGE


@dataclass(frozen=True, slots=True)
class Options:
    """What every verb takes."""

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


def verb(work: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., None]:
    """A command for typer of `work(options, …)`: it takes the options of all beside its own.

    The process ends with the code that `work` gives, or with that of its error, which is one sentence.
    """
    # Its module may know Options for types only.
    signature = inspect.signature(work, eval_str=True, locals={"Options": Options})
    own = [each for each in signature.parameters.values() if each.name != "options"]
    fresh = Options()
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(fresh, name), annotation=annotation)
        for name, annotation in SHARED.items()
    ]

    def command(**given: Any) -> None:
        options = Options(**{name: given.pop(name) for name in SHARED})
        raise typer.Exit(carry_out(lambda: work(options, **given), options.log_level))

    parameters = [*own, *shared]
    command.__doc__ = work.__doc__
    command.__annotations__.update({each.name: each.annotation for each in parameters})
    vars(command)["__signature__"] = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    return command


def run_command(app: typer.Typer, name: str) -> NoReturn:
    """Run what the command line asks of `app` and end the process; `name` is how it was called.

    A command line that cannot be parsed is one sentence.
    """
    try:
        code = app(prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        called = context.command_path if context else name
        said = error.format_message().replace("Value error, ", "").rstrip(".")
        # Whoever calls without a command is shown what there is.
        usage = f"cannot run {called}: {said[:1].lower()}{said[1:]} (example: {called} --help)"
        print(said if "\n" in said else usage, file=sys.stderr)  # noqa: T201 - whoever called this reads standard error
        code = error.exit_code
    sys.exit(code)


def carry_out(work: Callable[[], Coroutine[Any, Any, int]], level: LogLevel = "WARNING") -> int:
    """Do it; answers the exit code."""
    # A process that lives for a second: what it would collect goes with it.
    gc.disable()
    from gpu_scheduler.process.logs import set_up_logging

    set_up_logging(level)
    try:
        return asyncio.run(work())
    except FailedError as error:
        return tell(error)


def tell(error: FailedError) -> int:
    """Print the sentence; answers the exit code."""
    print(error, file=sys.stderr)  # noqa: T201 - whoever called this reads standard error; a log line would bury it
    return error.code
