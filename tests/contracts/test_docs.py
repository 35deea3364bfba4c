"""Each file that a page names exists, and so does the target of each link."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from gpu_scheduler.core.pods.unknown_keys import WRITTEN
from gpu_scheduler.names import PREFIX
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")])
NAMED: Final = re.compile(r"`([\w.*-]+/(?:[\w.*-]+/)*(?:[\w.*-]+\.(?:j2|md|py|toml|yaml|yml))?)(?:::\w+)?`")
"""A file, or a folder by the slash at its end. Names without a folder are a reader's own files."""
NOT_OURS: Final = ("agentaflow.gpu/", "manifests/base/", "manifests/gpu-", "bench/results/raw/", "evidence/INVENTORY/")
"""An annotation's prefix, files of Kubeflow's repositories, and files that git ignores."""
LINK: Final = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
BLOCK: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _text(page: Path) -> str:
    """Return the page without its code blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in HEADING.findall(_text(page))}


def missing_files(page: Path, text: str) -> list[str]:
    """Return the named files and folders that exist neither in the checkout, the package nor the page's folder."""
    named = [name for name in NAMED.findall(text) if not name.startswith(NOT_OURS)]
    roots = (ROOT, ROOT / "scheduler" / "gpu_scheduler", page.parent)
    return [name for name in named if not any(any(root.glob(name)) for root in roots)]


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links within the checkout whose file or heading does not exist."""
    broken = []
    for path, anchor in LINK.findall(text):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(f"{path}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    """A file of the checkout that a page names exists."""
    assert missing_files(page, _text(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_each_link_leads_to_a_heading_or_a_file(page: Path) -> None:
    """Links to other sites are not followed."""
    assert broken_links(page, _text(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_no_page_reads_the_log_of_one_replica_of_a_deployment(page: Path) -> None:
    """`kubectl logs deployment/NAME` chooses one replica, which may be the one that does not lead."""
    ours = r"kubectl logs\b[^`\n]*\bdeployment/gpu-scheduler"

    assert re.findall(ours, page.read_text(encoding="utf-8")) == []


def test_table_of_annotations_has_each_key_that_users_write() -> None:
    """A row may name several: the first whole, the others without the prefix."""
    section = (ROOT / "docs" / "map.md").read_text(encoding="utf-8").partition("\n## Annotations\n")[2]
    cells = [line.split("|")[1] for line in section.partition("\n\n## ")[0].splitlines() if line.startswith("| `")]
    keys = [key for cell in cells for key in re.findall(r"`([^`]+)`", cell)]

    assert sorted(PREFIX + key[1:] if key.startswith("/") else key for key in keys) == WRITTEN


def test_the_readme_s_picture_is_described_with_its_own_figures() -> None:
    """The page of the measurements is written from the results of which the picture is drawn."""
    described = re.search(r"!\[([^]]*)\]\(bench/results/standard/throughput\.png\)", (ROOT / "README.md").read_text())
    assert described
    figures = re.findall(r"\d[\d,]*", described[1])
    (backlog,) = re.findall(r"(?m)^- \*\*A backlog\*\*.*$", (ROOT / "docs" / "performance.md").read_text())

    assert len(figures) == 3
    assert [figure for figure in figures if figure not in re.findall(r"\d[\d,]*", backlog)] == []
