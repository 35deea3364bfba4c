"""Every command in README.md and docs/*.md is run by a test, or its block says what no test has."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest

from gpu_scheduler.cli.main import app
from tests import doc_commands
from tests.contracts.roles import ROOT
from tests.doc_commands import NEEDS, PageCommand, Runner

COMMANDS: Final = doc_commands.read_all()
TARGETS: Final = sorted({command.text for command in COMMANDS if command.text.startswith("make ")})
PAGE: Final = """\
# A page

```sh
first --option   # a remark
# only a remark
second \\
  --of "two lines"    # exit status 3
third "$(fourth |
  fifth '# of no remark')"
cat > file <<END
here # kept
END
```

<!-- needs: NVIDIA GPU -->
```sh
nvidia-smi
```

  ```text
$ sixth    # exit status 1, because it waits
what it prints
  ```

```yaml
kind: Pod
```
"""


@pytest.mark.promise("text-16")
def test_every_command_is_run_or_marked() -> None:
    """The message says what to do."""
    assert doc_commands.unaccounted(COMMANDS) == []


def test_a_command_that_nothing_runs_is_named() -> None:
    """With its page and its line; a marked one, and one of a walked page, are not."""
    added = [
        *doc_commands.read("docs/new.md", PAGE),
        PageCommand("docs/cordon.md", 9, "gpu-scheduler cordon node9", 0, "", 8),
    ]

    found = doc_commands.unaccounted(added)

    assert [line.partition(" is executed")[0] for line in found] == [
        "docs/new.md:4: `first --option`",
        "docs/new.md:6: `second \\`",
        'docs/new.md:8: `third "$(fourth |`',
        "docs/new.md:10: `cat > file <<END`",
        "docs/new.md:21: `sixth`",
    ]
    assert all("<!-- needs: … --> (NVIDIA GPU, AKS cluster, " in line for line in found)


@pytest.mark.parametrize("runner", doc_commands.RUNNERS, ids=lambda runner: f"{runner.page} {runner.beginning}")
def test_each_row_names_a_test_that_has_the_command(runner: Runner) -> None:
    """Its file exists and has the part that the row quotes. A row without a command is deleted."""
    assert runner.part or runner.test in {doc_commands.ON_API_SERVER, doc_commands.ON_CLUSTER}
    assert runner.part in (ROOT / runner.test).read_text(encoding="utf-8")
    assert any(doc_commands.runner_of(command) is runner for command in COMMANDS if not command.needs)


def test_each_mark_says_what_the_tests_do_not_have() -> None:
    """In the words of a closed list, right above a block with commands."""
    marks = [
        f"{page}: {mark}"
        for page in doc_commands.PAGES
        for mark in re.findall(r"<!-- needs: (.*?) -->", (ROOT / page).read_text(encoding="utf-8"))
        if page != "docs/testing.md"
    ]
    marked = {(command.page, command.block): command.needs for command in COMMANDS if command.needs}

    assert sorted(marks) == sorted(f"{page}: {needs}" for (page, _), needs in marked.items())
    assert {need for needs in marked.values() for need in needs.split(", ")} <= set(NEEDS)


@pytest.mark.parametrize("command", TARGETS)
def test_each_target_exists_and_reads_the_variables_that_it_is_given(command: str) -> None:
    """Whatever the target runs, `make` knows it; a variable that it does not read is misspelt."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    script = command.replace("make ", "make --dry-run ", 1)

    done = subprocess.run(("bash", "-c", script), cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    given = re.findall(r" ([A-Z_]+)=", re.sub(r"'[^']*'|\"[^\"]*\"", "", command))
    assert [name for name in given if f"$({name})" not in makefile and f"$(or $({name})" not in makefile] == []


@pytest.mark.parametrize("page", [page for page in doc_commands.PAGES if page != "docs/sources.md"])
def test_each_verb_option_and_target_in_a_sentence_exists(page: str) -> None:
    """They are not run, but a verb, an option or a target that was renamed is found."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    codes = doc_commands.in_text(page)

    assert [word for code in codes if (word := unknown_word(code)) is not None] == []
    targets = [code.split()[1] for code in codes if re.match(r"make [a-z]", code)]
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


def unknown_word(code: str) -> str | None:
    """Return the first word of a call of the command line that it does not know; None if it knows all."""
    found = re.match(r"(?:kubectl )?gpu-scheduler ([a-z-]+)(.*)", code)
    if not found or found[1].startswith("-"):
        return None
    verb = app.commands.get(found[1])
    if verb is None:
        return found[1]
    known = {option for parameter in verb.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = re.findall(r"(?<![\w-])--?[a-z][\w-]*", found[2].partition("|")[0])
    return next((option for option in given if option not in known), None)


@pytest.mark.promise("text-16")
def test_a_script_ends_at_the_first_command_that_ends_otherwise() -> None:
    """It says which one, and whole words are replaced."""
    script = doc_commands.script(
        [
            PageCommand("docs/new.md", 1, "exit_with() { return $1; }", 0, "", 0),
            PageCommand("docs/new.md", 2, "echo NODE NODES", 0, "", 0),
            PageCommand("docs/new.md", 3, "exit_with 3", 3, "", 0),
            PageCommand("docs/new.md", 4, "exit_with 2", 0, "", 0),
            PageCommand("docs/new.md", 5, "echo later", 0, "", 0),
        ],
        {"NODE": "node1"},
    )

    done = subprocess.run(("bash", "-c", script), capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (99, "node1 NODES\n")
    assert done.stderr == "docs/new.md:4: `exit_with 2`: exit status 2\n"
