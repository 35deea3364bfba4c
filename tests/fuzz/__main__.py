"""Fuzzes one target after the other, guided by coverage. Usage: make fuzz ARGS="[SECONDS [TARGET…]]".

The corpus stays in .fuzz_cache/ for the next run. An input that breaks a property is kept there too: minimize it, and
add it to a scenario table as a row whose name is a sentence.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.fuzz.targets import TARGETS

ROOT: Final = Path(__file__).resolve().parents[2]
WORK: Final = ROOT / ".fuzz_cache"
SECONDS: Final = 150
"""For each target."""
SLOWEST: Final = 10
"""Seconds that an input may take."""
MEMORY: Final = 1024
"""MiB that a target may use."""
DONE: Final = re.compile(r"^#(\d+)\s+DONE\s+(.*)$", re.MULTILINE)


def fuzz(name: str, seconds: int) -> bool:
    """Fuzz one target; return whether every property held."""
    target, folder = TARGETS[name], WORK / name
    seeds, corpus = folder / "seeds", folder / "corpus"
    for each in (seeds, corpus):
        each.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (seeds / str(number)).write_bytes(seed)
    command = (
        *(sys.executable, "-m", "tests.fuzz.harness", name, str(corpus), str(seeds)),
        *(
            f"-max_total_time={seconds}",
            f"-max_len={target.longest}",
            f"-dict={Path(__file__).with_name('words.dict')}",
        ),
        *(f"-timeout={SLOWEST}", f"-rss_limit_mb={MEMORY}", f"-artifact_prefix={folder}/"),
    )
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    output = done.stdout + done.stderr
    (folder / "log").write_text(output)
    found = DONE.search(output)
    if done.returncode or found is None:
        print(f"{name}: a promise is broken, or the fuzzer could not run; {folder}/ has the input and the log")
        # The exception is in one stream, the fuzzer's output in the other.
        print(done.stdout[-3000:] or done.stderr[-3000:])
        return False
    print(f"{name}: {found[1]} inputs in {seconds} s, nothing broken; {found[2]}")
    return True


def main(words: list[str]) -> int:
    """Return 0 if every property held."""
    if find_spec("atheris") is None:
        print("cannot fuzz here: atheris is made for Linux on x86-64 alone, and make fuzz installs it there")
        return 2
    seconds, names = int(words[0]) if words else SECONDS, words[1:] or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"cannot fuzz {' '.join(unknown)}: the targets are {' '.join(TARGETS)}")
        return 2
    broken = [name for name in names if not fuzz(name, seconds)]
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
