"""A fake of docker, kind and every other program with which a play could change this host.

It records its calls and answers by its own name. STAND_IN_ENGINE names a file with the state of the engine: whether it
answers, its containers by id, and whether kind's network exists. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# systemd's output for a running service.
SERVICE = "Id=docker.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"


def docker(engine: Json, words: list[str]) -> str:
    """Return docker's output; a removal changes the engine's state."""
    if not engine["answers"]:
        sys.exit("Cannot connect to the Docker daemon. Is the docker daemon running?")
    containers: Json = engine["containers"]
    answer = ""
    match words:
        case ["version", *_]:
            answer = "29.0.0"
        case ["ps", *options]:
            answer = "\n".join(listed(containers, options))
        case ["inspect", *ids]:
            answer = json.dumps([containers[each]["inspected"] for each in ids])
        case ["rm", "--force", "--volumes", *names]:
            for name in names:
                del containers[name]
        case ["network", "ls", *_]:
            answer = "1" if engine["network"] else ""
        case ["network", "rm", "kind"]:
            engine["network"] = False
    return answer


def listed(containers: Json, options: list[str]) -> list[str]:
    """Return the ids that `docker ps` lists with these options."""
    filters = [option.partition("=") for option in options if "=" in option]
    return [
        each
        for each, container in containers.items()
        if ("--all" in options or container["running"])
        and all(
            value in container["labels"] if kind == "label" else value in container["networks"]
            for kind, _, value in filters
        )
    ]


def main() -> None:
    """Record the call and answer it."""
    program, words = Path(sys.argv[0]).name, sys.argv[1:]
    with Path(os.environ["STAND_IN_NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(json.dumps([program, *words]) + "\n")
    if program == "systemctl" and words[0] == "show":
        sys.stdout.write(SERVICE)
    # Calls of other programs may run at the same time.
    if program == "docker":
        file = Path(os.environ["STAND_IN_ENGINE"])
        engine = json.loads(file.read_text(encoding="utf-8"))
        sys.stdout.write(f"{docker(engine, words)}\n")
        file.write_text(json.dumps(engine), encoding="utf-8")


if __name__ == "__main__":
    main()
