"""The verb as it is typed: exit codes, files and folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit_tests.cli.lint.manifests import pod, stateful_set, template
from unit_tests.cli.test_commands import typed

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = pod(template())
WRONG = pod(template(None))
WARNED = pod(template(annotations="agentaflow.gpu/memroy: a\n"))
TEXTS = {"right": RIGHT, "wrong": WRONG, "warned": WARNED, "broken": "gpu: [\n"}
CODES = [
    (("right.yaml",), 0),
    (("wrong.yaml",), 1),
    (("right.yaml", "wrong.yaml"), 1),
    (("warned.yaml",), 0),
    (("--strict", "warned.yaml"), 1),
    (("--strict", "right.yaml"), 0),
    (("broken.yaml", "wrong.yaml"), 2),
    ((".",), 2),
]


@pytest.mark.promise("lint-6")
@pytest.mark.parametrize(("words", "code"), CODES, ids=[" ".join(words) for words, _ in CODES])
def test_the_exit_code_says_whether_the_text_is_right(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    """No cluster is needed, and none is looked for."""
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")

    done = typed("lint", *(each if each.startswith("--") else str(tmp_path / each) for each in words), HOME="/nowhere")

    assert done.returncode == code, done
    assert (done.stdout == "") == (words[-1] == "right.yaml")
    assert done.stderr == ("" if done.stdout else "No findings in 1 object\n")


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    """Nothing is checked then."""
    done = typed("lint", str(tmp_path / "none.yaml"))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"cannot read {tmp_path}/none.yaml: No such file or directory; name a file")
    assert typed("lint", "-", "-").stderr.startswith('cannot read standard input twice; name "-" once')


def test_all_files_are_checked_together(tmp_path: Path) -> None:
    """Those of a folder too."""
    for name in ("first", "second"):
        text = stateful_set("0=node1:0\n", name=name)
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")

    assert "cannot give GPU 0 of node1 to two workloads" in typed("lint", str(tmp_path)).stdout
