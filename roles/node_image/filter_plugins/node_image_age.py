"""When an image was made or pulled: a stamp in its label, in its archive's name, or in a record of the cache."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

# UTC, to the minute. Later stamps are greater as texts.
FORMAT: Final = "%Y%m%dT%H%M"
STAMP: Final = r"(\d{8}T\d{4})\b"


def node_image_stamp(texts: list[str], prefix: str) -> str:
    """Return the newest stamp that follows the prefix and a hyphen in one of the texts; empty if there is none."""
    pattern = re.compile(rf"\b{re.escape(prefix)}-{STAMP}")
    return max((stamp for text in texts for stamp in pattern.findall(text)), default="")


def node_image_now(_: object = None) -> str:
    """Return the stamp of this minute."""
    return datetime.now(UTC).strftime(FORMAT)


def node_image_is_old(stamp: str, days: int | str) -> bool:
    """Whether this many days have passed since the stamp; an empty or invalid stamp is old."""
    oldest = (datetime.now(UTC) - timedelta(days=int(days))).strftime(FORMAT)
    return not re.fullmatch(STAMP, stamp) or stamp <= oldest


def node_image_state(
    inspected: str, source: str, days: int | str, built: dict[str, str], pulled: dict[str, str]
) -> dict[str, list[str]]:
    """Return the images of this source that are missing in the engine, and those that are there and old.

    `inspected` is what the engine says of the images. `built` has the key in the label of each, `pulled` the name of
    each, and the stamp of the last pull. A node image that is pulled has a digest, so it never counts as old.
    """
    if source == "pull":
        there = {image for image in built if f'"{pulled[image]}"' in inspected}
        stamps = {"python": pulled["stamp"]}
    else:
        stamps = {image: node_image_stamp([inspected], key) for image, key in built.items()}
        there = {image for image, stamp in stamps.items() if stamp and source == "build"}
    return {
        "missing": [image for image in built if image not in there],
        "old": [image for image, stamp in stamps.items() if image in there and node_image_is_old(stamp, days)],
    }


class FilterModule:
    """The filters as Ansible finds them."""

    def filters(self) -> dict[str, object]:
        """Return name → filter."""
        return {
            "node_image_is_old": node_image_is_old,
            "node_image_now": node_image_now,
            "node_image_stamp": node_image_stamp,
            "node_image_state": node_image_state,
        }
