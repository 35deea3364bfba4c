"""Options, errors and exit codes that all verbs share. It imports nothing slow, because every `--help` loads it."""

from __future__ import annotations

import sys
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.text import printable, quote
from gpu_scheduler.names import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""The exit code of shells for Ctrl-C."""


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


@immutable
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


def duration_in(text: str) -> timedelta | None:
    """Return the positive duration ("90s", "5m") that the text is; None if it is none."""
    import durationpy

    try:
        found: timedelta = durationpy.from_str(text)
    except (durationpy.DurationError, ValueError, OverflowError):
        return None
    return found if found > timedelta() else None


def read_duration(text: str, option: str) -> float:
    """Read a positive duration; return seconds. RefusedInputError if it is none."""
    found = duration_in(text)
    if found is None:
        raise RefusedInputError(f'cannot use {option} "{text}": it must be a positive duration (example: {option} 90s)')
    return found.total_seconds()


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
