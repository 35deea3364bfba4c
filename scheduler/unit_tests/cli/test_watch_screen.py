import asyncio
from datetime import UTC, datetime

import pytest

from gpu_scheduler.cli.installation import Installation
from gpu_scheduler.cli.snapshot import read_node, read_pod
from gpu_scheduler.cli.verbs.watch_screen import Content, Screen, content_of, frame, live_screen, moved
from gpu_scheduler.cli.verbs.watch_state import ClusterFacts, Key, View, WatchState
from unit_tests.cli.scripted_cluster import Capsys, device, node, pod
from unit_tests.cli.test_watch_state import encoded

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LONG = "GpuHeld: GPU 1 of node1 is held by machine-learning/train-with-a-long-name-0; wait until it ends, or delete it"


def view(waiting: int = 1) -> dict[Key, View]:
    """Return four nodes, a pod on the first, and pods that wait."""
    state = WatchState(Installation())
    for number in range(1, 5):
        state.nodes.handler.applied(read_node(encoded(node(f"node{number}", *map(device, range(4))))))
    state.pods.handler.applied(read_pod(encoded(pod("a-0", "node1", "0,1,2,3"))))
    for number in range(waiting):
        state.pods.handler.applied(read_pod(encoded(pod(f"late-{number}", message=LONG))))
    return state.view()


FACTS = ClusterFacts("gpu-scheduler-0_1, for 3h", "best_fit (ConfigMap gpu-scheduler-settings)")


def text_of(width: int = 80, *, wide: bool = False, facts: ClusterFacts = FACTS) -> str:
    content = content_of(view(), facts, NOW, width=width, wide=wide, coloured=False)
    return "\n".join((*content.head, *content.body))


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("wide", [False, True])
def test_every_line_fits_the_terminal_and_nothing_is_lost(width: int, *, wide: bool) -> None:
    """Node, devices, reason and age stand there at 80 columns."""
    shown = text_of(width, wide=wide)

    assert max(map(len, shown.splitlines())) <= width
    for word in ("late-0", "a-0", "GpuHeld", "0,1,2,3", "node1", "24h") if not wide else ("late-0", "GpuHeld"):
        assert word in shown
    assert "…" not in shown


def test_what_waits_stands_first() -> None:
    """Then what runs, then the nodes."""
    lines = text_of().splitlines()
    first = [line.split()[1] for line in lines if line.startswith("ml ")]

    assert first == ["late-0", "a-0"]
    assert lines.index(next(line for line in lines if line.startswith("node1"))) > len(first)


def test_the_head_names_leader_strategy_and_conflicts() -> None:
    """Three conflicts, and how many more there are."""
    facts = ClusterFacts("none", "unknown", tuple(f"GPU {each} of node1 is held by ml/a and ml/b" for each in range(5)))
    lines = text_of(facts=facts).splitlines()

    assert lines[:7] == [
        "00:00:00  16 GPUs known, 4 held, 12 free; 2 workloads, 1 pending",
        "Leader none; strategy unknown",
        *(f"GpuConflict: GPU {each} of node1 is held by ml/a and ml/b" for each in range(3)),
        "GpuConflict: 2 more (gpu-scheduler status)",
        "",
    ]


def test_a_frame_fills_the_screen() -> None:
    """The head stays, the body is a part, and the last line says which and names the keys."""
    content = Content(["head", ""], [f"line {each}" for each in range(50)])

    lines = frame(content, 10, 40, 8, coloured=False)

    assert lines == [
        "head",
        "",
        *(f"line {each}" for each in range(10, 15)),
        "lines 11-15 of 50   j k, arrows, PgUp Pg",
    ]
    assert len(frame(content, 48, 80, 8, coloured=True)) == 8
    assert frame(Content([], []), 0, 80, 3, coloured=False)[:2] == ["", ""]


KEYS = {
    "down": (b"j", 1),
    "arrow down twice": (b"\x1b[B\x1b[B", 2),
    "up stops at the first line": (b"jk\x1b[Ak", 0),
    "a page": (b"\x1b[6~", 5),
    "a page and back": (b" \x1b[5~", 0),
    "the last page": (b"G", 45),
    "first": (b"Gg", 0),
    "unknown keys do nothing": (b"jx\x1b[Z", 1),
}


@pytest.mark.parametrize(("typed", "offset"), KEYS.values(), ids=KEYS)
def test_keys_scroll(typed: bytes, offset: int, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pager. The first line of the body that is visible is this one."""
    content = Content(["head", ""], [f"line {each}" for each in range(50)])
    screen = Screen(wide=False, coloured=False, size=lambda: (80, 8), stop=asyncio.Event())
    monkeypatch.setattr(screen, "_content", lambda: content)

    screen.press(typed)

    drawn = capsys.readouterr().out.split("\x1b[K\n")
    assert drawn[2] == f"line {offset}"
    assert drawn[-1].startswith(f"lines {offset + 1}-{offset + 5} of 50 ")


def test_q_ends_the_watch(capsys: Capsys) -> None:
    """The verb then leaves the terminal as it was."""
    stop = asyncio.Event()
    screen = Screen(wide=False, coloured=False, size=lambda: (80, 24), stop=stop)

    screen.press(b"q")

    assert stop.is_set()
    capsys.readouterr()


def test_the_last_view_stays_on_the_terminal(capsys: Capsys) -> None:
    """After the screen has been left."""
    with live_screen(asyncio.Event(), wide=False) as screen:
        screen.show(view(), FACTS)

    _, _, left = capsys.readouterr().out.rpartition("\x1b[?25h")
    assert "Leader gpu-scheduler-0_1, for 3h; strategy best_fit" in left
    assert "late-0" in left
    assert "\x1b" not in left


def test_an_offset_never_leaves_the_body() -> None:
    """Also if the body has become shorter."""
    assert moved(30, "", 5, 10) == 10
    assert moved(3, "", 5, -4) == 0
