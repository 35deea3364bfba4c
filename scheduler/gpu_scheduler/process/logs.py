"""Log lines: JSON on a pipe, coloured lines on a terminal; the standard library's own loggers come out the same way.

Nothing here decides what is worth a line; it only decides what a line looks like.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, Processor, ProcessorReturnValue

if "rich" not in sys.modules:
    # structlog imports rich wherever it is installed, for tracebacks we do not use: 10 MB and 0.1 s in every process.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

Logger = structlog.stdlib.BoundLogger

_stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
# What every record has; all else came as `extra`.
_OWN = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime"})
# Third parties that speak on INFO of things which are ordinary here.
_QUIET = ("aiohttp", "asyncio", "kubernetes")


def get_logger(name: str) -> Logger:
    """The logger of one module; `name` becomes the field `logger`."""
    logger: Logger = structlog.stdlib.get_logger(name)
    return logger


def set_up_logging(level: str, *, terminal: bool | None = None) -> None:
    """Make every logger of this process write to standard error; `terminal` None asks whether that is one."""
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        _stamp,
        structlog.processors.StackInfoRenderer(),
    ]
    handler = _Lines(sys.stderr)
    factory: Callable[[str], Any] = structlog.stdlib.LoggerFactory()
    formatter = structlog.stdlib.ProcessorFormatter
    hand_over: Processor = structlog.stdlib.ProcessorFormatter.wrap_for_formatter
    if sys.stderr.isatty() if terminal is None else terminal:
        last: list[Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_json)]
        factory, hand_over, formatter = handler.logger, _hand_over, _Records
    handler.setFormatter(
        formatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
        ),
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Nobody reads them, and finding them costs a third of a line (logging's own page on optimization).
    logging._srcfile = None  # noqa: SLF001 - the documented way
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            hand_over,
        ],
        logger_factory=factory,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


class _Lines(logging.StreamHandler[TextIO]):
    """Writes records, and what is ordinary without one: there is a line for each pod, and a record doubles its cost."""

    def logger(self, name: str) -> _Logger:
        """The logger that structlog hands its events to."""
        return _Logger(logging.getLogger(name), self)

    def write(self, event: EventDict) -> None:
        """Write the event as JSON; like a record that cannot be written, it disturbs nobody."""
        try:
            line = _json(structlog.processors.format_exc_info(None, "info", event))
            self.acquire()
            try:
                self.stream.write(f"{line}{self.terminator}")
                self.flush()
            finally:
                self.release()
        except Exception:  # noqa: BLE001 - whatever a record's own would be
            self.handleError(logging.makeLogRecord({"msg": event}))


class _Records(structlog.stdlib.ProcessorFormatter):
    """Writes the standard library's records; those that hold nothing odd without a chain of processors."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the same line either way."""
        if record.exc_info or record.stack_info or isinstance(record.msg, dict):
            return super().format(record)
        event: EventDict = {"event": record.getMessage()}
        event.update({name: value for name, value in record.__dict__.items() if name not in _OWN})
        event["logger"], event["level"] = record.name, record.levelname.lower()
        return _json(_stamp(None, "", event))


class _Logger:
    """The standard library's own, but for what is ordinary."""

    def __init__(self, logger: logging.Logger, lines: _Lines) -> None:
        self._logger = logger
        self.name = logger.name
        self.info = lines.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


def _hand_over(logger: Any, method: str, event: EventDict) -> ProcessorReturnValue:
    """An event as `_Logger` takes it."""
    if method == "info":
        return (event,), {}
    return structlog.stdlib.ProcessorFormatter.wrap_for_formatter(logger, method, event)


def _json(event: EventDict, **_: Any) -> str:
    """One line; what JSON does not know is shown as Python shows it."""
    return msgspec.json.encode(event, enc_hook=repr).decode()
