from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import bench.__main__ as program
from bench import results, session
from bench.jobs import Job
from bench.plans import Part
from bench.results import Cell, Machine
from tests.bench.sample_results import one
from tests.bench.sample_results import session as made_up

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Measured


def job(name: str) -> Job:
    """Return a job that is identified by its contender."""

    def measure(repetition: int, _: object) -> Measured:
        return one(name, number=repetition)

    return Job(Cell("W1", name), measure)


def of(part: str, measured: Measured) -> Measured:
    """Return the result as a cell of this part."""
    measured.part = part
    return measured


def elsewhere() -> results.Session:
    """Return a session of another machine."""
    here = made_up()
    here.machine = Machine("Another processor", 2, 24103, "6.1.0")
    return here


def test_contenders_take_turns_in_mirrored_order() -> None:
    """Drift of the machine affects all contenders alike."""
    part = Part("W1", lambda _: (job("L"), job("O"), job("K")), 3)

    assert [(each.cell.contender, repetition) for each, repetition in part.order([])] == [
        *(("L", 1), ("O", 1), ("K", 1)),
        *(("K", 2), ("O", 2), ("L", 2)),
        *(("L", 3), ("O", 3), ("K", 3)),
    ]


def test_parts_are_not_added_to_results_of_other_versions(tmp_path: Path) -> None:
    """For any parts."""
    path, here = tmp_path / "full.json", made_up()
    results.write(made_up(of("W1", one("O"))), path)
    here.versions = {"etcd": "3.7"}

    with pytest.raises(ValueError, match="versions were others"):
        session.resumed(path, here, ["W5"])


def test_another_machine_cannot_replace_one_side_of_a_ratio(tmp_path: Path) -> None:
    """The two figures of a ratio must be from one machine."""
    path, here = tmp_path / "full.json", elsewhere()
    results.write(made_up(of("W1", one("O")), of("W2", one("O")), of("W5", one("O"))), path)

    with pytest.raises(ValueError, match=r"another machine measured W1, which.*example: quick --only W1,W2\)"):
        session.resumed(path, here, ["W2", "W5"])
    found = session.resumed(path, here, ["W1", "W2"])
    session.renew(found, "W1", here)

    assert [each.part for each in found.measured] == ["W5"]


@pytest.mark.parametrize("done", [0, 1])
def test_old_results_stay_until_their_part_has_a_new_one(
    done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt before the first result loses nothing."""

    def measure(repetition: int, _: object) -> Measured:
        if repetition > done:
            raise KeyboardInterrupt
        return one("O", number=9)

    part = Part("W1", lambda _: (Job(Cell("W1", "O"), measure),), 2)
    monkeypatch.setattr(program, "PLANS", {"full": lambda: (part,)})
    monkeypatch.setattr(results, "RAW", tmp_path)
    monkeypatch.setattr(session, "begun", lambda _: made_up())
    monkeypatch.setattr(sys, "argv", ["bench", "full", "--only", "W1"])
    path = tmp_path / "full.json"
    results.write(made_up(of("W1", one("O")), of("W1", one("K"))), path)

    with pytest.raises(KeyboardInterrupt):
        program.main()

    found = results.read(path)
    assert [each.repetition for each in found.measured] == ([9] if done else [1, 1])
    assert [each.part for each in found.again] == ["W1"] * done
