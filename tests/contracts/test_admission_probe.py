"""A wait for policies and webhook ends when several answers in a row are right, and names who is in the way."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import pytest

from tests.contracts.cluster_modules import load_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

module = load_module("plugins", "modules", "admission_probe.py")
Answer = module.Answer

POD: Json = {"metadata": {"name": "probe", "namespace": "system"}, "spec": {"containers": [{"name": "probe"}]}}
OURS = Answer({}, "pods \"probe\" is forbidden: ValidatingAdmissionPolicy 'gpu-scheduler-rights' denied request: no")
ADMITTED = Answer(POD)
LITERAL = Answer({"spec": {"containers": [{"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]}]}})
REFERENCE = Answer({"spec": {"containers": [{"env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {}}]}]}})
DOWN = Answer({}, 'failed calling webhook "mutate": connection refused')


def probe(**options: Any) -> Json:
    """Return a probe as Ansible passes it, with all options."""
    return {"expected": "it is so", "pod": POD, "refused_by": [], "sets": "", "not_refused_by": [], **options}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0)


@pytest.mark.parametrize(
    ("options", "answer", "right"),
    [
        pytest.param({"refused_by": ["gpu-scheduler-rights"]}, OURS, True, id="our policy refuses the pod"),
        pytest.param({"refused_by": ["gpu-scheduler-rights"]}, ADMITTED, False, id="nobody refuses the pod"),
        pytest.param({"refused_by": ["gpu-scheduler-rights"]}, DOWN, False, id="something else refuses the pod"),
        pytest.param({"sets": "valueFrom"}, REFERENCE, True, id="the policy injects"),
        pytest.param({"sets": "valueFrom"}, LITERAL, False, id="the webhook still injects"),
        pytest.param({"sets": "value"}, LITERAL, True, id="the webhook injects"),
        pytest.param({"sets": "value"}, ADMITTED, False, id="nobody injects"),
        pytest.param({"sets": "value", "refused_by": ["failed calling"]}, DOWN, True, id="one of two right answers"),
        pytest.param({"not_refused_by": ["rights", "calling"]}, OURS, False, id="our policy is still in force"),
        pytest.param({"not_refused_by": ["rights", "calling"]}, ADMITTED, True, id="our policy is gone"),
    ],
)
def test_answer_is_right(options: Json, answer: Any, *, right: bool) -> None:
    """Each kind of probe knows its right answers."""
    assert module.is_right(probe(**options), answer) is right


def asked(answers: Iterator[Any]) -> list[Any]:
    """Return how many answers a wait for three right ones took, and its failure."""
    taken = []

    def ask(_pod: Json) -> Any:
        taken.append(next(answers))
        return taken[-1]

    fault = module.wait(probe(refused_by=["gpu-scheduler-rights"]), ask, 3, 60)
    return [len(taken), fault]


@pytest.mark.promise("up-12")
@pytest.mark.parametrize(
    ("answers", "taken"),
    [
        pytest.param([OURS] * 3, 3, id="all API servers know the policy"),
        pytest.param([OURS, ADMITTED, OURS, OURS, ADMITTED, OURS, OURS, OURS], 8, id="one API server is late"),
        pytest.param([DOWN, OURS, OURS, OURS], 4, id="the first answer is an error"),
    ],
)
def test_right_answers_must_follow_each_other(answers: list[Any], taken: int) -> None:
    """A wrong answer between right ones begins the count anew: another API server is not there yet."""
    assert asked(iter(answers)) == [taken, ""]


@pytest.mark.parametrize(
    ("refusal", "named"),
    [
        pytest.param(
            "ValidatingAdmissionPolicy 'company-pods' with binding 'x' denied request: no label",
            "ValidatingAdmissionPolicy 'company-pods' refuses the probe pod probe first",
            id="a policy",
        ),
        pytest.param(
            'admission webhook "validate.kyverno.svc" denied the request: no label',
            'admission webhook "validate.kyverno.svc" refuses the probe pod probe first',
            id="a webhook",
        ),
        pytest.param(
            'pods "probe" is forbidden: exceeded quota: team, requested: pods=1',
            "quota: team refuses the probe pod probe first",
            id="a quota",
        ),
    ],
)
def test_refusal_of_somebody_else_is_named(refusal: str, named: str) -> None:
    """The failure names the policy or webhook, the namespace to except from it, and the whole refusal."""
    fault = module.wait(probe(refused_by=["gpu-scheduler-rights"]), lambda _: Answer({}, refusal), 3, 0)

    assert f"cannot see that it is so: {named}. Except namespace system from it" in fault
    assert refusal in fault


@pytest.mark.parametrize("answer", [DOWN, ADMITTED], ids=["an error", "an admission"])
def test_last_answer_is_reported(answer: Any) -> None:
    """A wait ends, and its failure has the last answer."""
    fault = module.wait(probe(refused_by=["gpu-scheduler-rights"]), lambda _: answer, 3, 0)

    assert fault.startswith("cannot see that it is so within 0 s. The last answer of the API server: ")
    assert (answer.refusal or "admits pod probe") in fault


def test_each_answer_has_a_connection_of_its_own(tmp_path: Path) -> None:
    """Every question is a process of kubectl, and a dry run; a refusal is whole, and warnings are no part of it."""
    kubectl = tmp_path / "kubectl"
    said = "Warning: x\\nError: no:\\n\\n  because\\n"
    kubectl.write_text(f'#!/bin/sh\necho "$$ $*" >> {tmp_path}/calls\nprintf "{said}" >&2\nexit 1\n')
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    ask = module.ask_with([str(kubectl), "--context=a"])

    answers = [ask(POD) for _ in range(2)]

    calls = (tmp_path / "calls").read_text().splitlines()
    assert [answer.refusal for answer in answers] == ["Error: no: because"] * 2
    assert len({call.split()[0] for call in calls}) == 2
    assert all("--context=a create --raw /api/v1/namespaces/system/pods?dryRun=All" in call for call in calls)
