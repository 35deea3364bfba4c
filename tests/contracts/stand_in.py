"""Stands in the place of docker, kind and every other program that a play could change this host with.

It notes what it was called with, and answers by the name that it is linked to: STAND_IN_ENGINE is a file that holds
whether an engine answers, its containers by id, and whether kind's network is there. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# What systemd says of a service that runs.
SERVICE = "Id=docker.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"


def docker(engine: Json, words: list[str]) -> str:
    """What docker prints; what is removed is gone from the engine."""
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
    """The ids of the containers that `docker ps` lists with these options."""
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
    """Note the call and answer it."""
    program, words = Path(sys.argv[0]).name, sys.argv[1:]
    with Path(os.environ["STAND_IN_NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(json.dumps([program, *words]) + "\n")
    file = Path(os.environ["STAND_IN_ENGINE"])
    engine = json.loads(file.read_text(encoding="utf-8"))
    if program == "docker":
        sys.stdout.write(f"{docker(engine, words)}\n")
    if program == "systemctl" and words[0] == "show":
        sys.stdout.write(SERVICE)
    file.write_text(json.dumps(engine), encoding="utf-8")


if __name__ == "__main__":
    main()
