"""Where the images come from: one rule, so that a rerun of any tag decides as the first run did."""

from typing import Literal, get_args

Source = Literal["pull", "build"]


def node_image_source(asked: str, recorded: str, *, complete: bool, answers: bool) -> Source:
    """The source to use.

    `asked` is the inventory's word, `recorded` what an earlier run decided, `complete` whether the images of that
    decision are all here, `answers` whether a registry answered just now. What is here already stays: a laptop on a
    train keeps the images it pulled, and a registry that comes back does not throw a built cluster away.
    """
    for source in get_args(Source):
        if asked == source or (asked == "auto" and recorded == source and complete):
            return source
    return "pull" if answers else "build"


class FilterModule:
    """Ansible's door."""

    def filters(self) -> dict[str, object]:
        """The filter, under its own name."""
        return {"node_image_source": node_image_source}
