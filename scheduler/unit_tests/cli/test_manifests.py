import json

import pytest

from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.cli.verbs.generate import TEMPLATE
from gpu_scheduler.cli.verbs.manifests import read_documents

HEAD = "apiVersion: agentaflow.io/v1\nkind: GPUWorkload\n"
ONE = f"{HEAD}metadata: {{name: a}}\n"


def test_documents_are_numbered_as_people_count() -> None:
    """Empty documents do not count, and a List's items do."""
    listed = "{apiVersion: agentaflow.io/v1, kind: GPUWorkload, metadata: {name: '7'}}"
    text = f"---\n{ONE}---\n---\nkind: List\nitems: [{listed}]\n"

    assert [str(each) for each in read_documents(text, "work.yaml")] == [
        "document 1 (GPUWorkload a) of work.yaml",
        "document 2 (GPUWorkload 7) of work.yaml",
    ]


def test_json_is_yaml() -> None:
    """As for kubectl."""
    body = {"apiVersion": "agentaflow.io/v1", "kind": "GPUWorkload", "metadata": {"name": "a", "namespace": "ml"}}

    (found,) = read_documents(json.dumps(body), "work.json")

    assert (found.name, found.namespace, json.loads(found.sent("ml"))) == ("a", "ml", body)


def test_a_date_is_a_text() -> None:
    """The API server knows no type for dates."""
    (found,) = read_documents(f"{HEAD}metadata: {{name: a, labels: {{since: 2026-01-01}}}}\n", "work.yaml")

    assert json.loads(found.sent("ml"))["metadata"]["labels"] == {"since": "2026-01-01"}


def test_anchors_are_written_out() -> None:
    """Merged keys are not duplicates."""
    text = f"{ONE}spec: {{base: &b {{x: 1}}, more: {{<<: *b, y: 2}}}}\n"

    assert json.loads(read_documents(text, "work.yaml")[0].sent("ml"))["spec"]["more"] == {"x": 1, "y": 2}


@pytest.mark.promise("cli-6")
def test_the_template_can_be_submitted() -> None:
    """It is the output of generate-template."""
    assert read_documents(TEMPLATE, "template.yaml")[0].name == "my-workload"


FAULTS = {
    "no YAML": ("a: [", r"cannot read work.yaml: line 1: .*; correct it"),
    "a character that YAML does not take": ("a: \x01", r"cannot read work.yaml: "),
    "a duplicate key": (f"{ONE}spec:\n  a: 1\n  a: 2\n", r'cannot read work.yaml: line 6: key "a" stands twice'),
    "a tag that makes objects": ("!!python/object/new:os.system [ls]", r"cannot read work.yaml: line 1: could not"),
    "nothing": ("---\n", r"cannot submit work.yaml: it has no document"),
    "a text": ("hello", r'cannot read document 1 of work.yaml: it is "hello", and must be an object'),
    "another kind": (
        f"{ONE}---\napiVersion: v1\nkind: Pod\nmetadata: {{}}\n",
        r'cannot submit document 2 of work.yaml: apiVersion is "v1", and must be agentaflow.io/v1',
    ),
    "no kind": (
        "apiVersion: agentaflow.io/v1\n",
        r'cannot read document 1 of work.yaml: its kind is "", and must be a text; write one',
    ),
    "a List of nothing readable": ("kind: List\nitems: 3\n", r'document 1 of work.yaml: it is "3", and must'),
    "no name": (f"{HEAD}metadata: {{}}\n", r"document 1 of work.yaml: it has no metadata.name; write one"),
    "no metadata": (HEAD, r"cannot read document 1 of work.yaml: it has no metadata; write one with a name"),
    "a name that is a number": (f"{HEAD}metadata: {{name: 7}}\n", r"its metadata.name is no text; put it in quotes"),
    "a namespace that is a number": (
        f"{HEAD}metadata: {{name: a, namespace: 7}}\n",
        r"its metadata.namespace is no text; put it in quotes",
    ),
    "a number that JSON does not know": (f"{ONE}spec: {{priority: .nan}}\n", r"a value that JSON does not know"),
    "a value that JSON does not know": (f"{ONE}spec: {{x: !!binary aGk=}}\n", r"a value that JSON does not know"),
}


@pytest.mark.parametrize(("text", "sentence"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_one_sentence_that_names_the_document(text: str, sentence: str) -> None:
    """With a command that prints a valid example."""
    with pytest.raises(RefusedInputError, match=sentence) as raised:
        read_documents(text, "work.yaml")

    assert "\n" not in str(raised.value)
    assert "example: gpu-scheduler generate-template" in str(raised.value)
