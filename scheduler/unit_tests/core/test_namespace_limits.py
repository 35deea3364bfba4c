"""The lines of ConfigMap gpu-scheduler-limits: what they mean, and the fault of a line that cannot be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.namespace_limits import NO_LIMITS, Limit, NamespaceLimits, parse_limits
from tests.messages import text_of

READ = {
    "a namespace of its own": ("team-a: devices=8 priority=1000", {"team-a": Limit(8, 1000)}, Limit()),
    "all others": ("*: devices=4", {}, Limit(4)),
    "a field that a line leaves out is as for all others": (
        "team-a: devices=8\n*: devices=4 priority=10",
        {"team-a": Limit(8, 10)},
        Limit(4, 10),
    ),
    "a line may lift the limit of all others": (
        "*: devices=4 priority=10\nteam-a: devices=unlimited",
        {"team-a": Limit(None, 10)},
        Limit(4, 10),
    ),
    "no device": ("team-a: devices=0", {"team-a": Limit(0)}, Limit()),
    "a priority below zero": ("team-a: priority=-5", {"team-a": Limit(None, -5)}, Limit()),
    "comments, empty lines, spaces and Windows line ends": (
        "# who may have what\r\n\r\n  team-a :  priority=1   devices=2  \r\n   # the rest\r\n*:devices=1",
        {"team-a": Limit(2, 1)},
        Limit(1, None),
    ),
    "nothing": ("", {}, Limit()),
    "comments alone": ("# nobody is limited", {}, Limit()),
}


@pytest.mark.parametrize(("text", "lines", "others"), READ.values(), ids=READ)
def test_limits_are_read(text: str, lines: dict[str, Limit], others: Limit) -> None:
    """The text has a line per namespace, and one for all others."""
    assert parse_limits(text) == (NamespaceLimits(lines, others), ())


EXAMPLE = " (example: team-a: devices=8 priority=1000)"
NO_NAME = text_of("limits: no name of a namespace")
NUMBER = text_of("limits: no number of devices")
ANOTHER = text_of("limits: another word")
WRONG = {
    "no colon": (
        "team-a devices=8",
        f'cannot read "team-a devices=8": {text_of("limits: a line has no colon")}',
    ),
    "no namespace's name": (
        "Team_A: devices=8",
        f'cannot read namespace "Team_A": {NO_NAME}',
    ),
    "a name that is too long": (f"{'a' * 64}: devices=8", f'cannot read namespace "{"a" * 60}…": {NO_NAME}'),
    "no field": ("team-a:", f'cannot read "team-a:": {text_of("limits: a line says nothing")}'),
    "another word": ("team-a: gpus=8", f'cannot read "gpus=8": {ANOTHER}'),
    "a word alone": ("team-a: devices", f'cannot read "devices": {NUMBER}'),
    "no number": ("team-a: devices=many", f'cannot read "devices=many": {NUMBER}'),
    "a number below zero": ("team-a: devices=-1", f'cannot read "devices=-1": {NUMBER}'),
    "a leading zero": ("team-a: devices=08", f'cannot read "devices=08": {NUMBER}'),
    "another script's digit": ("team-a: devices=٣", "cannot read "),
    "too many": ("team-a: devices=1000000", f'cannot read "devices=1000000": {NUMBER}'),
    "a priority that no pod can have": (
        "team-a: priority=1000000001",
        f'cannot read "priority=1000000001": {text_of("limits: no number of a priority")}',
    ),
    "a word twice": ("team-a: devices=1 devices=2", 'cannot read "devices=2": devices occurs twice'),
    "a comment behind the content": ("team-a: devices=1 # few", f'cannot read "#": {ANOTHER}'),
}


@pytest.mark.parametrize(("line", "message"), WRONG.values(), ids=WRONG)
def test_a_line_that_cannot_be_read_is_named(line: str, message: str) -> None:
    """The fault has the line's number, the rule and an example; the other lines apply."""
    limits, faults = parse_limits(f"# ours\nteam-b: devices=2\n{line}\n*: priority=5")

    (fault,) = faults
    assert fault.startswith(f"line 3: {message}")
    assert fault.endswith(EXAMPLE)
    assert limits.of("team-b") == Limit(2, 5)
    assert limits.of("team-c") == Limit(None, 5)


def test_a_namespace_whose_line_cannot_be_read_may_hold_nothing_more() -> None:
    """Its limit is unknown; other namespaces keep theirs. A namespace with two lines is treated the same."""
    limits, faults = parse_limits("team-a: devices=x\nteam-b: devices=1\nteam-b: devices=2\nteam-c: devices=3")

    assert limits.of("team-a") == limits.of("team-b") == Limit(0, 0, readable=False)
    assert limits.of("team-c") == Limit(3)
    assert limits.of("team-d") == Limit()
    second = text_of("limits: a namespace has a second line", namespace="team-b")
    assert faults[1] == f'line 3: cannot read "team-b: devices=2": {second}{EXAMPLE}'


def test_a_wrong_line_for_all_others_counts_as_not_written() -> None:
    """It would stop the whole cluster; the lines of namespaces apply as written."""
    limits, faults = parse_limits("*: devices=x\nteam-a: devices=1")

    assert limits == NamespaceLimits({"team-a": Limit(1)})
    assert len(faults) == 1


@given(st.text() | st.text(alphabet="ab*:=0 \nprioritydevices-#"))
def test_any_text_is_read(text: str) -> None:
    """No text raises; a text without content has no limits, and each line has at most one fault."""
    limits, faults = parse_limits(text)

    content = [line.strip() for line in text.splitlines()]
    assert (limits == NO_LIMITS) >= (not any(line and not line.startswith("#") for line in content))
    assert len(faults) <= len(content)


@pytest.mark.parametrize(("asked", "counts"), [(10**9, 1000), (1000, 1000), (-7, -7), (0, 0)])
def test_a_priority_counts_as_the_maximum_at_most(asked: int, counts: int) -> None:
    """Without a maximum it counts as it is."""
    limits, _ = parse_limits("team-a: priority=1000")

    assert (limits.priority("team-a", asked), limits.priority("team-b", asked)) == (counts, asked)
