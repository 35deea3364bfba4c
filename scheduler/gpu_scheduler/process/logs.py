"""Log lines: JSON on a pipe, coloured lines on a terminal.

Every module logs with the standard library: `logging.getLogger(__name__)`, and fields in `extra`. A field cannot have
the name of an attribute of `logging.LogRecord` (`name`, `args`, `message`).
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, Final

# Not structlog: it imports rich if that is installed, which takes 3 MB, 6 to 9 % of each program's memory.
from pythonjsonlogger.core import RESERVED_ATTRS, merge_record_extra
from pythonjsonlogger.msgspec import MsgspecFormatter

from gpu_scheduler.core.text import printable

if TYPE_CHECKING:
    from pythonjsonlogger.core import LogData

# Libraries that log ordinary events at INFO.
_QUIET: Final = ("aiohttp", "asyncio")
# ANSI colour codes.
_GREEN: Final = 32
_COLOURS: Final = {"WARNING": 33, "ERROR": 31, "CRITICAL": 31}


def set_up_logging(level: str, *, terminal: bool | None = None) -> None:
    """Make every logger of this process write to standard error. If `terminal` is None, ask whether that is one."""
    if terminal is None:
        terminal = sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TerminalFormatter() if terminal else _JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # No format shows source file, thread or process. To find them takes a third of the cost of a line (logging's own
    # page on optimization).
    logging._srcfile = None  # noqa: SLF001 - the documented way
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


class _JsonFormatter(MsgspecFormatter):
    """Writes one JSON object a line; a value that JSON lacks is written as its repr.

    Every character that is not printable is escaped, because people read these lines on a terminal (`kubectl logs`).
    """

    def __init__(self) -> None:
        super().__init__(
            ["message", "name", "levelname"],
            rename_fields={"message": "event", "name": "logger", "levelname": "level", "exc_info": "exception"},
            timestamp=True,
            json_default=repr,
        )

    def process_log_record(self, log_data: LogData) -> LogData:
        """Write levels in lower case."""
        log_data["level"] = log_data["level"].lower()
        return log_data

    def jsonify_log_record(self, log_data: LogData) -> str:
        """Escape what JSON may contain as it is: C1 control codes, and characters that turn text around."""
        line = super().jsonify_log_record(log_data)
        return line if line.isprintable() else "".join(map(_json_escape, line))


class _TerminalFormatter(logging.Formatter):
    """Writes time, level, event and fields, and an exception's traceback below.

    What users wrote is escaped. No part of it begins a line, so that it cannot look like a line of ours.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s \x1b[%(colour)dm%(levelname)-8s\x1b[0m %(message)s%(fields)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Write one line."""
        extra: dict[str, Any] = merge_record_extra(record, {}, RESERVED_ATTRS)
        record.message = printable(record.message)
        record.fields = "".join(f" \x1b[36m{name}\x1b[0m={printable(str(value))}" for name, value in extra.items())
        record.colour = _COLOURS.get(record.levelname, _GREEN)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging calls
        """Write the traceback, indented."""
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


def _json_escape(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]
