from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import bench.__main__ as program
from bench import growth, plans, results, session
from bench.jobs import Job
from bench.plans import Part
from bench.results import Again, Cell, Machine
from bench.targets import CHURNED, CLAIMED
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


@pytest.mark.parametrize("parts", [plans.quick(), plans.standard(), plans.claims(), plans.full()])
def test_the_parts_of_a_plan_have_cells_and_names_of_their_own(parts: plans.Plan) -> None:
    """No cell is measured by two parts, and none twice in a part."""
    found = [
        one(name, number=number, variant="curl/32", workload=workload)
        for name, workload in (("L", "W1"), ("A", "W2-sustained"))
        for number in (1, 2, 3)
    ]
    cells = [each.cell for part in parts for each in part.jobs(found)]

    assert len({part.name for part in parts}) == len(parts)
    assert len(set(cells)) == len(cells)
    assert all(part.jobs(found) for part in parts)


def test_each_client_of_the_limit_takes_part_as_it_was_fastest_in_the_sweep() -> None:
    """With events by the last event, without by the last bind; a client outside the sweep uses the middle."""
    found = [
        one(name, rate, workload="W1-limit", variant=variant)
        for name, rate, variant in (
            ("L", 900.0, "curl/64"),
            ("L", 800.0, "curl/128"),
            ("L", 990.0, "go/8"),
            ("L0", 700.0, "curl/8"),
        )
    ]
    (contenders,) = (part for part in plans.full() if part.name == "W1")
    variants = [(each.cell.contender, each.cell.variant) for each in contenders.jobs(found) if each.cell.variant]

    assert variants == [
        *(("L", "curl/64"), ("L", "aiohttp/32"), ("L", "go/8")),
        *(("L0", "curl/8"), ("L0", "aiohttp/32"), ("L0", "go/32")),
    ]


def test_arrivals_need_a_limit() -> None:
    """Without a limit there is no rate, and nothing is measured. What A sustains is measured first, then half of it."""
    flood, arriving = (part for part in plans.full() if part.name.startswith("W2"))

    assert flood.order([]) == arriving.order([one("L", 1000, variant="curl/32")]) == []
    jobs = flood.jobs([one("L", 1000, variant="curl/32")])
    assert [(each.cell.contender, each.cell.variant) for each in jobs] == [("O", "400/s"), ("A", "curl/32")]
    jobs = arriving.jobs([one("A", 600, workload="W2-sustained", variant="curl/32")])
    assert [(each.cell.workload, each.cell.contender, each.cell.variant) for each in jobs] == [
        ("W2", "O", "300/s"),
        ("W2", "A", "300/s"),
        ("W4", "O", "300/s"),
    ]


def test_parts_are_chosen_by_name() -> None:
    """In the plan's order, whatever the order of the names; the error for an unknown name lists the known ones."""
    plan = tuple(Part(name, lambda _: (), 1) for name in ("W1", "W5", "W6"))

    assert plans.chosen_parts(plan, "W6,W1") == (plan[0], plan[2])
    with pytest.raises(ValueError, match=r"cannot measure part 'W9': it must be one of W1, W5, W6 \(example"):
        plans.chosen_parts(plan, "W1,W9")


def test_a_part_that_is_measured_again_says_so(tmp_path: Path) -> None:
    """Each part is recorded once, with its latest time; other parts do not change."""
    path, first, later = tmp_path / "full.json", made_up(), made_up()
    session.renew(first, "W1", first)
    assert first.again == []

    results.write(made_up(of("W1", one("O")), of("W5", one("O"))), path)
    found, later.commit = session.resumed(path, first, ["W5"]), "def456"
    for here in (first, later):
        session.renew(found, "W5", here)
        assert found.again == [Again("W5", here.began, here.commit)]
    assert [each.part for each in found.measured] == ["W1"]


def test_a_part_is_not_measured_alone_without_the_raw_runs_of_the_others(tmp_path: Path) -> None:
    """Raw results are not committed, and a report of one part would replace that of all parts."""
    with pytest.raises(
        ValueError, match=r"cannot measure W1, W5 alone: .*full.json is not there.*python -m bench quick\)"
    ):
        session.resumed(tmp_path / "full.json", made_up(), ["W1", "W5"])


def test_parts_are_not_added_to_results_of_other_versions(tmp_path: Path) -> None:
    """For any parts."""
    path, here = tmp_path / "full.json", made_up()
    results.write(made_up(of("W1", one("O"))), path)
    here.versions = {"etcd": "3.7"}

    with pytest.raises(ValueError, match="versions were others"):
        session.resumed(path, here, ["W5"])


@pytest.mark.parametrize("parts", [["W5"], ["W1", "W2"], ["W1", "W2", "W5"]])
def test_another_machine_may_replace_parts_without_shared_ratios(parts: list[str], tmp_path: Path) -> None:
    """The session records the other machine."""
    path, here = tmp_path / "full.json", elsewhere()
    results.write(made_up(of("W1", one("O")), of("W2", one("O")), of("W5", one("O"))), path)

    for _ in range(2):
        found = session.resumed(path, here, parts)
        for part in parts:
            session.renew(found, part, here)
            found.measured.append(of(part, one("O")))
        assert sorted(each.part for each in found.measured) == ["W1", "W2", "W5"]
        assert found.again == [Again(part, here.began, here.commit, here.machine) for part in parts]
        results.write(found, path)


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


def test_sizes_leave_room_for_what_is_measured() -> None:
    """The sizes include those of the targets, and no size has more pods than GPUs."""
    sizes = {(cell.nodes, cell.pods) for cell in growth.cells()}

    assert {(10, 100), (5000, 100), (100, 1000), (5000, 1000), CHURNED, CLAIMED, (5000, 50_000)} <= sizes
    assert (10, 1000) not in sizes
