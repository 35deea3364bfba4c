"""Compares all packages that the locks pin with published advisories: `make audit`. pip-audit asks the service.

Exit status: 0 if no advisory names a package, 1 if one does, 2 if the options are wrong, 3 if none is found but the
service did not answer for every package.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from requirements.locks import read_locks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from requirements.locks import Pin

ADVISORIES: Final = 1
WRONG_OPTIONS: Final = 2
UNANSWERED: Final = 3
MOST_NAMED: Final = 3

Package = tuple[str, str]
"""Name and version."""


def locks_of(locks: Mapping[str, Sequence[Pin]]) -> dict[Package, list[str]]:
    """Return each package at each version, and the locks that have it."""
    found: defaultdict[Package, list[str]] = defaultdict(list)
    for lock, pins in locks.items():
        for pin in pins:
            found[pin.name, pin.version].append(lock)
    return dict(sorted(found.items()))


def one_version_each(packages: Sequence[Package]) -> list[dict[str, str]]:
    """Divide the packages into groups, name → version: pip-audit refuses two versions of a package."""
    groups: list[dict[str, str]] = []
    for name, version in packages:
        group = next((group for group in groups if name not in group), None)
        if group is None:
            groups.append(group := {})
        group[name] = version
    return groups


def ask(group: Mapping[str, str], options: Sequence[str]) -> tuple[dict[Package, list[str]], str]:
    """Return the advisories of each package that the service knows, and why the others have no answer."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pins.txt"
        file.write_text("".join(f"{name}=={version}\n" for name, version in group.items()), encoding="utf-8")
        command = (
            *(sys.executable, "-m", "pip_audit", "--format=json", "--progress-spinner=off"),
            *("--disable-pip", "--no-deps", f"--requirement={file}", *options),
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    error = done.stderr.strip().rpartition("\n")[2]
    if done.returncode == WRONG_OPTIONS:
        print(error, file=sys.stderr)  # noqa: T201 - a command's output
        sys.exit(WRONG_OPTIONS)
    try:
        answers = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return {}, textwrap.shorten(error, 160) or f"exit status {done.returncode}"
    advisories = {
        (each["name"], group[each["name"]]): [_text(advisory) for advisory in each["vulns"]]
        for each in answers
        if "vulns" in each
    }
    return advisories, next((each["skip_reason"] for each in answers if "skip_reason" in each), "")


def _text(advisory: Mapping[str, list[str]]) -> str:
    names = " ".join((str(advisory["id"]), *advisory.get("aliases", ())))
    return f"{names}, {'fixed in ' + ' '.join(advisory['fix_versions']) if advisory['fix_versions'] else 'not fixed'}"


def report(
    packages: Mapping[Package, Sequence[str]], advisories: Mapping[Package, Sequence[str]], reason: str
) -> tuple[str, int]:
    """Return what is known about the packages, and the exit status."""
    found = [
        f"{name} {version} ({', '.join(packages[name, version])}): {text}"
        for (name, version), texts in advisories.items()
        for text in texts
    ]
    unanswered = [" ".join(package) for package in packages if package not in advisories]
    lines = [*found]
    if unanswered:
        more = f" and {len(unanswered) - MOST_NAMED} more" if len(unanswered) > MOST_NAMED else ""
        lines.append(
            f"cannot audit {len(unanswered)} of {len(packages)} packages, {', '.join(unanswered[:MOST_NAMED])}{more}: "
            f"the advisory service did not answer for them ({reason}), so nothing is known about them; run this where "
            "it answers, or ask another service (example: make audit ARGS='-s osv')"
        )
    elif not found:
        lines.append(f"No advisory names any of the {len(packages)} packages in requirements/*.txt.")
    return "\n".join(lines), ADVISORIES if found else UNANSWERED if unanswered else 0


def main() -> None:
    """Pass the options of the command line to pip-audit."""
    packages = locks_of(read_locks())
    advisories: dict[Package, list[str]] = {}
    reasons = []
    for group in one_version_each(list(packages)):
        answered, reason = ask(group, sys.argv[1:])
        advisories |= answered
        reasons.append(reason)
    text, status = report(packages, advisories, next(filter(None, reasons), ""))
    print(text)  # noqa: T201 - a command's output
    sys.exit(status)


if __name__ == "__main__":
    main()
