"""One seed gives one run: the plan, the episode, the minimized failure, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler.cli.options import Output
from simulator.__main__ import _soak
from simulator.episode import Episode
from simulator.faults import ACTS, Fault
from simulator.minimize import shrunk
from simulator.plan import EPISODE, Action, plan, seed_of
from simulator.replica_process import starter
from simulator.soak import Total, soak
from simulator.tests.bugs import BUGS
from simulator.trace import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulator.plan import Step

ROOT: Final = Path(__file__).resolve().parents[2]
PATH: Final = f"{ROOT}:{ROOT / 'scheduler'}"
"""Where Python finds the simulator and the package."""
SHORT: Final = 150


def simulate(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command; its environment has only these variables and those of coverage."""
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return subprocess.run(
        [sys.executable, "-m", "simulator", *args],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": PATH, **measured, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plan_follows_from_its_seed() -> None:
    """Another seed gives another plan, and each episode has its own seed."""
    assert plan(1, 50) == plan(1, 50)
    assert plan(1, 50) != plan(2, 50)
    assert plan(1, 50)[-1].what is Action.QUIET
    assert [seed_of(5, episode) for episode in (0, 0)] == [5, 5]
    assert len({seed_of(seed, episode) for seed in range(20) for episode in range(20)}) == 400


def test_every_fault_can_occur() -> None:
    """The plan contains each of them."""
    there = {step.what for seed in range(5) for step in plan(seed, EPISODE)}

    assert [fault for fault in Fault if fault not in there] == []
    assert [action for action in Action if action not in there] == []
    assert {kind for kind, _ in ACTS.values()} == {
        *("bind", "claim", "get", "status", "event"),
        *("list", "page", "lease", "watch"),
    }


def test_one_seed_gives_one_trace_bit_for_bit() -> None:
    """Every request, its time and its response. Another seed gives another trace."""
    outcomes = [Episode(seed, starter()).run(plan(seed, SHORT)) for seed in (3, 3, 4)]

    assert [outcome.violation for outcome in outcomes] == [None, None, None]
    assert outcomes[0].digest == outcomes[1].digest != outcomes[2].digest
    assert outcomes[0].binds == outcomes[1].binds > SHORT / 5


def test_more_processes_give_the_same_result() -> None:
    """Only sooner: the results of the episodes are added in their order."""
    args = ("--seed", "5", "--steps", str(EPISODE + 200), "-o", "json")
    alone, beside = (facts_of(simulate(*args, "--jobs", jobs)) for jobs in ("1", "2"))
    rest = facts_of(simulate(*args, "--after", str(EPISODE)))

    assert 0 < rest["binds"] < alone["binds"]
    assert rest["steps"] == 200
    assert alone["steps"] == EPISODE + 200
    assert {**alone, "seconds": 0, "stepsPerSecond": 0} == {**beside, "seconds": 0, "stepsPerSecond": 0}


def test_an_interrupted_run_prints_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code that shells give to Ctrl-C."""

    def interrupted(seed: int, *_: object, progress: Callable[[Total], None], **__: object) -> Total:
        progress(Total(seed, steps=3000, binds=700))
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.__main__.soak", interrupted)

    assert _soak(1, 9000, 2000, 1, Output.JSON) == 130
    captured = capsys.readouterr()
    view = json.loads(captured.out)["items"][0]
    assert captured.err == "go on with: make soak SEED=1 STEPS=9000 AFTER=5000\n"
    assert (view["steps"], view["binds"], view["violation"]) == (3000, 700, None)


def test_the_order_of_pythons_sets_changes_nothing() -> None:
    """Processes with other string hashes give the same result."""
    runs = [simulate("--seed", "5", "--steps", "1000", "-o", "json", PYTHONHASHSEED=seed) for seed in ("0", "1", "2")]
    view = [json.loads(each.stdout)["items"][0] for each in runs]

    assert len({fact["digest"] for fact in view}) == 1


def test_a_failure_is_minimized_to_the_steps_that_cause_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a seed that reproduces it."""
    BUGS["skip_terminating"](monkeypatch)

    total = soak(1, EPISODE, starter, tries=25)

    failure = total.failure
    assert failure is not None
    assert failure.violation.startswith(("apart: ", "ledger: "))
    assert len(failure.fewest) < failure.steps / 2
    again = Episode(failure.seed, starter()).run(failure.fewest)
    assert again.violation is not None
    assert again.violation.partition(":")[0] == failure.violation.partition(":")[0]


def test_steps_are_left_out_until_all_are_needed() -> None:
    """Whatever steps are between them."""
    steps = plan(1, 64)
    needed = {steps[3], steps[20], steps[61]}

    def fails(some: Sequence[Step]) -> bool:
        return needed <= set(some)

    assert set(shrunk(steps, fails, 500)) == needed
    assert shrunk(steps, fails, 2) == steps


def test_a_trace_has_each_change_and_the_decisions_after_it() -> None:
    """Without faults, so that it can be replayed on a real API server."""
    lines = list(record(2, 40, starter()))

    assert lines[0] == {"format": 1, "seed": 2, "steps": 40}
    assert {key for line in lines[1:] for key in line} <= {
        *("create", "replace", "remove", "terminate", "phase"),
        *("object", "name", "decided"),
    }
    decided = [one for line in lines for one in line.get("decided", ())]
    assert sum("bind" in one for one in decided) > 5
    assert sum("wait" in one for one in decided) > 0
    assert list(record(2, 40, starter())) == lines
    names = [line["object"]["metadata"]["name"] for line in lines if line.get("create") == "pods"]
    assert {one["bind"] for one in decided if "bind" in one} <= set(names)


def facts_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    view: dict[str, Any] = json.loads(result.stdout)["items"][0]
    return view


def test_the_command_prints_its_result(tmp_path: Path) -> None:
    """As a table for people and as JSON for programs; with --trace, as lines of a file."""
    table = simulate("--steps", "60")
    trace = tmp_path / "trace.jsonl"
    written = simulate("--steps", "20", "--trace", str(trace))

    assert (table.returncode, written.returncode) == (0, 0)
    assert "\nbinds " in table.stdout
    assert "\nviolation " in table.stdout
    assert facts_of(simulate("--steps", "60", "-o", "json"))["steps"] == 60
    assert json.loads(trace.read_text().splitlines()[0])["steps"] == 20


REFUSED = {
    "no steps": (("--steps", "0"), "cannot run python -m simulator: invalid value for '--steps': "),
    "a seed that is no number": (("--seed", "x"), "cannot run python -m simulator: invalid value for '--seed': "),
    "after half an episode": (("--steps", "2000", "--after", "500"), "cannot go on after 500 steps: "),
    "after the end": (("--steps", "2000", "--after", "2000"), "cannot go on after 2000 steps: "),
    "too long a trace": (("--steps", "1001", "--trace", "t"), "cannot record 1001 steps: "),
    "nowhere to write": (("--steps", "5", "--trace", "/nowhere/t"), "cannot write /nowhere/t: No such file"),
    "a file that is there": (("--steps", "5", "--trace", str(Path(__file__))), f"cannot write {__file__}: File exists"),
}


@pytest.mark.parametrize(("args", "sentence"), REFUSED.values(), ids=REFUSED)
def test_invalid_arguments_are_reported_in_one_sentence(args: tuple[str, ...], sentence: str) -> None:
    """With an example, and exit code 2."""
    result = simulate(*args)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(sentence)
    assert result.stderr.count("\n") == 1
    assert "example: " in result.stderr


def test_an_error_of_our_own_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is logged while the replica continues, and one that ends a replica."""

    def wrong(*_: object) -> None:
        raise ValueError("this is a defect")

    async def wrong_later(_: object) -> None:
        raise ValueError("this is a defect")

    for target, replacement, error in (
        ("scheduler.scheduling_loop.decide", wrong, "Deciding failed with an internal error"),
        ("scheduler.run.SchedulerProcess._lead", wrong_later, "A replica failed with an internal error"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"gpu_scheduler.{target}", replacement)
            failure = soak(1, 40, starter, tries=0).failure
        assert failure is not None
        assert failure.violation.startswith(f"error: {error}")
