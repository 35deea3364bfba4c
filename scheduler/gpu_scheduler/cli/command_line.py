"""The command line of every verb, by click: shared options, and errors in one sentence.

It imports nothing slow, because every `--help` loads it.
"""

from __future__ import annotations

import gc
import inspect
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, get_args

import click

from gpu_scheduler.cli import live_names
from gpu_scheduler.cli.options import (
    FORMATS,
    INTERRUPTED,
    FailedError,
    LogLevel,
    Options,
    print_error,
    print_message,
    read_output,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

SETTINGS: Final = {"help_option_names": ["-h", "--help"], "show_default": True}
"""click's settings of a command line."""
PATH: Final = click.Path(readable=False)
"""A file or folder, which shells complete; whoever opens it says what is wrong with it."""

_DEFAULTS: Final = Options()
# The options of every verb; each fills the field of Options with its name.
SHARED: Final = (
    click.Option(
        ["--namespace", "-n"], help="Namespace; the context's otherwise.", shell_complete=live_names.namespaces
    ),
    click.Option(["--all-namespaces", "-A"], is_flag=True, help="All namespaces."),
    click.Option(
        ["--kubeconfig"],
        type=PATH,
        help="File that leads to the cluster; otherwise KUBECONFIG, ~/.kube/config, or the pod's own.",
    ),
    click.Option(
        ["--context"],
        help="Context of the kubeconfig; its current one otherwise.",
        shell_complete=live_names.contexts,
    ),
    click.Option(
        ["--system-namespace"],
        metavar="NAMESPACE",
        default=_DEFAULTS.system_namespace,
        help="Where the scheduler is installed.",
    ),
    click.Option(
        ["--output", "-o"],
        metavar="FORMAT",
        default=str(_DEFAULTS.output),
        help=f"What is printed: {', '.join(FORMATS)}.",
        shell_complete=lambda _ctx, _param, incomplete: [each for each in FORMATS if each.startswith(incomplete)],
    ),
    click.Option(["--no-headers"], is_flag=True, help="Print no column titles."),
    click.Option(
        ["--log-level"],
        type=click.Choice(get_args(LogLevel), case_sensitive=False),
        default=_DEFAULTS.log_level,
        help="Least level of log lines.",
    ),
)
# The options of the verbs that list objects, likewise.
OF_LISTINGS: Final = (
    click.Option(["--selector", "-l"], metavar="SELECTOR", help="Only objects with these labels."),
    click.Option(
        ["--field-selector"],
        metavar="SELECTOR",
        help="Only objects with these fields, as the API server selects them.",
    ),
    click.Option(["--sort-by"], metavar="PATH", help="Sort by a field of the JSON (example: .createdAt)."),
    click.Option(["--watch", "-w"], is_flag=True, help="Print each change too; Ctrl-C ends it."),
)


def command(function: Callable[..., Any]) -> click.Command:
    """Return the command of a function with click's decorators. Its options have the defaults of the parameters."""
    made = click.command()(function)
    parameters = inspect.signature(function).parameters
    for each in made.params:
        default = parameters[each.name].default
        if default not in {inspect.Parameter.empty, None, ()}:
            # click would show the name of an enumeration's member in --help, not the word that a user writes.
            each.default = str(default) if isinstance(default, StrEnum) else default
    return made


def verb(
    function: Callable[..., Coroutine[Any, Any, int]], *, lists: bool = False, without: Iterable[str] = ()
) -> click.Command:
    """Return the command of `function(options, …)`, with the shared options in addition to its own.

    `lists`: it has the options of listings too. `without`: it has not these shared ones, by field of Options; nor has
    it those that it declares itself.
    """
    made = command(function)
    left_out = {*without, *(each.name for each in made.params)}
    shared = [each for each in (*SHARED, *(OF_LISTINGS if lists else ())) if each.name not in left_out]

    def run(**given: Any) -> int:
        named = {each.name: given.pop(each.name) for each in shared}
        if "output" in named:
            named["output"], named["expression"] = read_output(named["output"])
        options = Options(**{name: value for name, value in named.items() if value is not None})
        return run_verb(lambda: function(options, **given), options.log_level)

    made.params += shared
    made.callback = run
    return made


def run_command(app: click.Command, name: str) -> NoReturn:
    """Run the command line with `app` and exit with what it returns, or with the code of its FailedError.

    `name` is the command as the user called it. If the command line cannot be parsed, print one sentence.
    """
    try:
        code = app.main(prog_name=name, standalone_mode=False)
    except FailedError as error:
        code = print_error(error)
    except click.Abort:
        code = INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)  # noqa: T201 - several lines
        code = error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        called = context.command_path if context else name
        message = " ".join(error.format_message().split()).rstrip(".")
        if isinstance(error, click.NoSuchOption):
            # The wording of click differs between its versions.
            message = message.replace(f"option {error.option_name!r}", f"option: {error.option_name}")
        print_message(f"cannot run {called}: {message[:1].lower()}{message[1:]} (example: {called} --help)")
        code = error.exit_code
    sys.exit(code)


def run_verb(function: Callable[[], Coroutine[Any, Any, int]], level: LogLevel = "WARNING") -> int:
    """Run `function` with log lines from `level` on; return the exit code."""
    import asyncio

    # The process lives for about a second, so collecting garbage is not worth its time.
    gc.disable()
    from gpu_scheduler.process.logs import set_up_logging

    set_up_logging(level)
    return asyncio.run(function())
