"""The source of the images: one rule, so that a later run with any tag decides as the first run did."""

from typing import Literal, get_args

Source = Literal["pull", "build"]


def node_image_source(asked: str, recorded: str, *, complete: bool, answers: bool) -> Source:
    """Return the source to use.

    `asked` is the inventory's setting, `recorded` the decision of an earlier run, `complete` whether all images of that
    decision exist, `answers` whether a registry answered just now. Existing images are kept: a host without a network
    keeps the images that it pulled, and a cluster of built images stays when a registry answers again.
    """
    for source in get_args(Source):
        if asked == source or (asked == "auto" and recorded == source and complete):
            return source
    return "pull" if answers else "build"


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self) -> dict[str, object]:
        """Return name → filter."""
        return {"node_image_source": node_image_source}
