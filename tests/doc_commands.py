"""Reads the commands of README.md and docs/*.md, and says which test runs each of them.

A command is a line of a block `sh` or `bash`, or a line of another block that begins with `$ `. It ends with exit
status 0, unless its comment says otherwise: `# exit status 1`. A block that needs what no test has is marked on the
line above it: `<!-- needs: NVIDIA GPU -->`. Every other command has a row in RUNNERS. The commands of docs/sources.md
are in tables: source_page.py reads them.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md")))
NEEDS: Final = {
    "NVIDIA GPU": "a kind cluster simulates its GPUs",
    "AKS cluster": "it is rented",
    "container registry": "a push needs an account there",
    "Argo CD": "its image comes from a container registry",
    "shell on a node": "the tests' nodes have the images already",
    "Grafana": "its image comes from a container registry",
    "Prometheus": "its image comes from a container registry",
}
"""What a block may need → why the tests do not have it. A mark names one or several."""

ON_API_SERVER: Final = "tests/integration/pages/test_doc_commands.py"
ON_CLUSTER: Final = "tests/cluster/usage/test_doc_commands.py"
CONVENTIONS: Final = "tests/integration/test_cli_conventions.py"
OUTSIDE: Final = "tests/cluster/usage/test_outside.py"
CHARTS: Final = "tests/cluster/charts/test_1_helm.py"
MANIFESTS: Final = "tests/cluster/charts/test_2_manifests.py"

_FENCE: Final = re.compile(r" *```(\w*)")
_BLOCK: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")
_MARK: Final = re.compile(r"<!-- needs: (.*) -->")
_STATUS: Final = re.compile(r"\bexit status (\d+)")
_HERE_DOCUMENT: Final = re.compile(r"<<'?(\w+)'?")
_FILE: Final = re.compile(r"(?:-f|\blint|\bsubmit) ([\w-]+\.yaml)")


@dataclass(frozen=True, slots=True)
class PageCommand:
    """One command of a page."""

    page: str
    line: int
    text: str
    """Without its comment."""
    status: int
    """The exit status that the page promises."""
    needs: str
    """What the mark of its block says; empty without a mark."""
    block: int
    """The line with which its block begins."""

    def __str__(self) -> str:
        """Return where the command is, and how it begins."""
        return f"{self.page}:{self.line}: `{self.text.splitlines()[0]}`"


@dataclass(frozen=True, slots=True)
class Runner:
    """A test that runs the commands of a page that begin in one way."""

    page: str
    """`*` is every page."""
    beginning: str
    """Empty for every command of the page."""
    test: str
    """The file of the test, or of the suite."""
    part: str = ""
    """What of the command stands in that file. Empty only for the two files that take the commands from the page."""

    def runs(self, command: PageCommand) -> bool:
        """Whether this test runs the command."""
        return self.page in {"*", command.page} and command.text.startswith(self.beginning)


RUNNERS: Final = (
    # The pages that a test walks through, and what of them others run.
    Runner("docs/existing-clusters.md", "", "tests/cluster/existing/page.py", "existing-clusters.md"),
    Runner("*", "uv tool install", "tests/cluster/commands.py", '"uv", "tool", "install", "--compile-bytecode"'),
    Runner("docs/cli.md", "gpu-scheduler workloads --watch", CONVENTIONS, '"workloads", "train-0", "late-0", "-w"'),
    Runner("docs/cli.md", "gpu-scheduler watch | cat", "tests/integration/test_cli.py", '"gpu-scheduler", "watch"'),
    Runner("docs/cli.md", "gpu-scheduler certificates", CHARTS, '"certificates"'),
    Runner("docs/cli.md", "kubectl apply -f certs/", CHARTS, '"webhook-tls-secret.yaml"'),
    Runner("docs/cli.md", "helm install", CHARTS, "webhook.caBundle={bundle}"),
    Runner("docs/doctor.md", "gpu-scheduler doctor -o json", ON_API_SERVER),
    Runner("docs/doctor.md", "gpu-scheduler doctor", "tests/integration/test_doctor.py", '"doctor"'),
    Runner("docs/helm.md", "helm install gpu-scheduler ", CHARTS, '"install", "gpu-scheduler", "charts/gpu-scheduler"'),
    Runner(
        "docs/helm.md", "helm install gpu-scheduler-check", CHARTS, '"install", CHECK, "charts/gpu-scheduler-check"'
    ),
    Runner("docs/helm.md", "helm test gpu-scheduler-check", CHARTS, '"test", CHECK'),
    Runner("docs/helm.md", "helm test gpu-scheduler", CHARTS, '"test", "gpu-scheduler"'),
    Runner("docs/helm.md", "kubectl apply -k manifests", MANIFESTS, '"apply", "-k"'),
    Runner("docs/helm.md", "kubectl wait", MANIFESTS, '"--for=condition=available", "deployment", "--all"'),
    Runner("docs/helm.md", "kubectl apply -f manifests/", MANIFESTS, '"gpu-scheduler-check.yaml"'),
    Runner("docs/how-it-works.md", "python3 -m venv", ON_CLUSTER),
    Runner("docs/how-it-works.md", "pip install", ON_CLUSTER),
    Runner("docs/how-it-works.md", "gpu-scheduler run --kubeconfig outside", OUTSIDE, "outside.config"),
    Runner(
        "docs/how-it-works.md",
        "gpu-scheduler run",
        "tests/integration/test_missing_rights.py",
        '"--leader-elect=false"',
    ),
    Runner("docs/images.md", "docker build ", "tests/cluster/redeploy/test_builds.py", 'docker("build"'),
    Runner("docs/isolation.md", "make up", "tests/cluster/isolation/test_3_switch.py", '"--skip-tags", "driver"'),
    Runner("docs/alerts.md", "kubectl logs", ON_CLUSTER),
    Runner("docs/metrics.md", "", ON_CLUSTER),
    Runner("docs/monitoring.md", "kubectl get", "tests/integration/test_observability.py", '"docs/monitoring.md"'),
    Runner("docs/tutorial.md", "make down", "tests/cluster/healing/runs.py", '"make", "down"'),
    Runner("docs/tutorial.md", "eval", "tests/contracts/test_inputs.py", "`make env`"),
    Runner("docs/tutorial.md", "", "tests/cluster/redeploy/test_tutorial.py", "tutorial_page"),
    Runner("docs/replay.md", "gpu-scheduler replay journal", "tests/integration/test_replay.py", '"replay", str(file)'),
    Runner("docs/simulator.md", "PYTHONPATH=.:scheduler", "simulator/tests/test_soak.py", '"-m", "simulator"'),
    Runner("docs/troubleshooting.md", "docker inspect", ON_CLUSTER),
    Runner("docs/verify.md", "", "tests/cluster/verify/test_verify.py", '"verify"'),
    # A program runs it that is part of the gate, or of the suites beyond it.
    Runner("docs/development.md", "export PATH", "tests/suites/gate.py", '"molecule"'),
    Runner("docs/development.md", "molecule", "tests/suites/gate.py", '"molecule", "test"'),
    *(
        Runner("*", f"make {target}", test, part)
        for target, test, part in (
            ("up", "tests/cluster/healing/runs.py", '"make", "up"'),
            ("uninstall", "tests/integration/test_removal.py", "playbooks/uninstall.yml"),
            ("manifests", "tests/cluster/charts/conftest.py", "playbooks/manifests.yml"),
            ("molecule", "tests/suites/gate.py", '"molecule", "test"'),
            ("soak", "tests/suites/beyond.py", '"-m", "simulator"'),
            ("fuzz", "tests/contracts/test_fuzz.py", "tests.fuzz.targets"),
            ("bench", "tests/bench/test_parts.py", "bench.__main__"),
            ("mutants", "tests/suites/beyond.py", '"tests.mutants.run"'),
            ("mutation", "tests/contracts/test_mutants.py", "mutation.main"),
            ("recording", "tests/contracts/test_recording.py", "recording.shown"),
            ("fmt", "tests/contracts/test_pages.py", "`make fmt` writes them"),
            ("lock", "tests/contracts/test_locks.py", '"requirements" / "compile"'),
            ("audit", "tests/cluster/redeploy/test_builds.py", '"make", "audit"'),
            ("sbom", "tests/cluster/redeploy/test_builds.py", '"make", "sbom"'),
            ("bump-kubernetes", "tests/contracts/test_bump_kubernetes.py", "bump_kubernetes.py"),
            ("test-suite", "tests/contracts/test_suites.py", '"test-suite"'),
            ("test", "tests/contracts/test_suites.py", "GATE_OF_MAKE"),
        )
    ),
    # Everything else runs on an API server without kubelets.
    *(
        Runner(page, "", ON_API_SERVER)
        for page in (
            "README.md",
            *(
                f"docs/{name}.md"
                for name in (
                    "alerts",
                    "boards",
                    "chart-values",
                    "cli",
                    "cordon",
                    "crds",
                    "explain",
                    "helm",
                    "how-it-works",
                    "isolation",
                    "lint",
                    "monitor",
                    "monitoring",
                    "network-policies",
                    "plan",
                    "reasons",
                    "replay",
                    "settings",
                    "troubleshooting",
                    "verbs",
                    "workloads",
                )
            ),
        )
    ),
)
"""The first row that has a command runs it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, with the lines between its fences."""

    language: str
    line: int
    needs: str
    lines: tuple[str, ...]


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    begun: tuple[str, int, str] | None = None
    lines: list[str] = []
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if begun is None:
            if fence:
                mark = _MARK.fullmatch(above.strip())
                begun, lines = (fence[1], number, mark[1] if mark else ""), []
            above = line
        elif fence:
            yield Block(*begun, tuple(lines))
            begun, above = None, ""
        else:
            lines.append(line)


def read(page: str, text: str | None = None) -> list[PageCommand]:
    """Return the commands of a page, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    return [command for block in blocks(text) for command in _commands(page, block)]


def read_all() -> list[PageCommand]:
    """Return the commands of all pages."""
    return [command for page in PAGES for command in read(page)]


def runner_of(command: PageCommand) -> Runner | None:
    """Return the first row of RUNNERS that runs the command."""
    return next((runner for runner in RUNNERS if runner.runs(command)), None)


def in_text(page: str, text: str | None = None) -> list[str]:
    """Return the code of a page that stands in its sentences and tables, without that of its blocks."""
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    return [" ".join(code.split()) for code in _CODE.findall(_BLOCK.sub("", text))]


def run_by(test: str) -> dict[str, list[PageCommand]]:
    """Return page → the commands that this test takes from it."""
    found: dict[str, list[PageCommand]] = {}
    for command in read_all():
        runner = runner_of(command)
        if not command.needs and runner is not None and runner.test == test:
            found.setdefault(command.page, []).append(command)
    return found


def unaccounted(commands: Iterable[PageCommand]) -> list[str]:
    """Return a sentence for each command that no test runs and whose block has no mark."""
    return [
        f"{command} is executed by no test: add a row to RUNNERS in tests/doc_commands.py, or mark its block with "
        f"<!-- needs: … --> ({', '.join(NEEDS)})"
        for command in commands
        if not command.needs and runner_of(command) is None
    ]


def manifests(page: str) -> dict[str, str]:
    """Return the files that commands of the page name → the page's last manifest before the first of them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = [(block.line, "\n".join(block.lines)) for block in blocks(text) if block.language == "yaml"]
    found: dict[str, str] = {}
    for command in read(page, text):
        before = [body for line, body in shown if line < command.line and re.search(r"^kind:", body, re.MULTILINE)]
        for file in _FILE.findall(command.text):
            if before:
                found.setdefault(file, f"{before[-1]}\n")
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with these words replaced, for example NODE by node1."""
    for word, value in values.items():
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", value.replace("\\", r"\\"), text)
    return text


def script(commands: Iterable[PageCommand], values: Mapping[str, str]) -> str:
    """Return a script of bash that ends with an error at the first command with another exit status."""
    return "".join(
        f"{filled(command.text, values)}\n"
        f"found=$?; [ $found -eq {command.status} ] || "
        f"{{ echo {shlex.quote(str(command))}: exit status $found >&2; exit 99; }}\n"
        for command in commands
    )


def _commands(page: str, block: Block) -> Iterator[PageCommand]:
    typed = block.language in {"sh", "bash"}
    lines = enumerate(block.lines, block.line + 1)
    for number, line in lines:
        if not typed and not line.startswith("$ "):
            continue
        text = line if typed else line.removeprefix("$ ")
        while not _is_complete(text):
            text += f"\n{next(lines)[1]}"
        comment = _comment_of(text)
        text = text.removesuffix(comment)
        if text:
            status = _STATUS.search(comment)
            yield PageCommand(page, number, text, int(status[1]) if status else 0, block.needs, block.line)


def _is_complete(text: str) -> bool:
    """Whether bash would run it, and not wait for more lines."""
    code = text.removesuffix(_comment_of(text)).rstrip()
    here = _HERE_DOCUMENT.search(code)
    if here:
        return code.splitlines()[-1] == here[1]
    return _is_quoted(code) and not code.endswith(("\\", "|", "&&"))


def _is_quoted(text: str) -> bool:
    """Whether each quote is closed."""
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


def _comment_of(text: str) -> str:
    """Return the comment at the end, with the white space before it; empty if there is none."""
    for found in re.finditer(r"(?:^|[ \t]+)#[ \t]", text):
        rest = text[found.start() :]
        if "\n" not in rest and _is_quoted(text[: found.start()]):
            return rest
    return ""
