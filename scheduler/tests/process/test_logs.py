import json
import logging
from collections.abc import Iterator

import pytest

from gpu_scheduler.process.logs import get_logger, set_up_logging


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_pipe_gets_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, with level, time and fields; the standard library's loggers too."""
    set_up_logging("INFO", terminal=False)
    get_logger("ours").info("Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)", namespace="default")
    logging.getLogger("theirs").warning("Bound %s", "a-0", extra={"node": "node1"})
    get_logger("ours").warning("Cannot read a pod", namespace="default")

    first, second, third = (json.loads(line) for line in capsys.readouterr().err.splitlines())

    assert first["event"] == "Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)"
    assert (first["level"], first["logger"], first["namespace"]) == ("info", "ours", "default")
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["node"], second["level"]) == ("Bound a-0", "node1", "warning")
    assert third.keys() == first.keys()
    assert (third["event"], third["level"], third["logger"]) == ("Cannot read a pod", "warning", "ours")


def test_a_terminal_gets_coloured_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """For eyes."""
    set_up_logging("INFO", terminal=True)
    get_logger("ours").info("Leading")

    line = capsys.readouterr().err
    assert "Leading" in line
    assert "\x1b[" in line


def test_the_level_is_obeyed_and_libraries_stay_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """What is ordinary for them is noise for an operator."""
    set_up_logging("INFO", terminal=False)
    get_logger("ours").debug("detail")
    logging.getLogger("kubernetes.aio").info("chatter")

    assert capsys.readouterr().err == ""


def test_errors_carry_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line of JSON."""
    set_up_logging("INFO", terminal=False)
    try:
        int("a bug")
    except ValueError:
        logging.getLogger("ours").exception("It failed")

    assert "ValueError: invalid literal" in json.loads(capsys.readouterr().err)["exception"]


def test_a_line_that_cannot_be_written_disturbs_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever logs has something better to do; the next line is written again."""
    set_up_logging("INFO", terminal=False)
    get_logger("ours").info("Odd: \udcff")
    get_logger("ours").info("Leading")

    assert json.loads(capsys.readouterr().err.splitlines()[-1])["event"] == "Leading"
