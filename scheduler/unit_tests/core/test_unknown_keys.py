"""Keys of annotations that resemble ours, and the known key that is named for each."""

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.pods.unknown_keys import unknown_key_message, unknown_keys
from tests.messages import text_of

LONGEST = "agentaflow.gpu/" + "x" * 63
NEAREST = {
    "a letter is missing": ("agentaflow.gpu/cout", names.COUNT),
    "two letters are swapped": ("agentaflow.gpu/memroy", names.MEMORY),
    "a letter is doubled": ("agentaflow.gpu/exxclusive", names.EXCLUSIVE),
    "a plural": ("agentaflow.gpu/priorities", names.PRIORITY),
    "capitals": ("agentaflow.gpu/Observer", names.OBSERVER),
    "the name of a GPUWorkload's field": ("agentaflow.gpu/gpuCount", names.COUNT),
    "an underscore": ("agentaflow.gpu/scheduling_strategy", names.STRATEGY),
    "the last word of a name": ("agentaflow.gpu/strategy", names.STRATEGY),
    "the last word of a name, misspelt": ("agentaflow.gpu/stratgy", names.STRATEGY),
    "the first word is missing": ("agentaflow.gpu/scheduling-map", names.MAP),
    "the map with our prefix": ("agentaflow.gpu/gpu-scheduling-map", names.MAP),
    "the map's last word": ("agentaflow.gpu/map", names.MAP),
    "the map with a letter too many": ("gpu-schedulling-map", names.MAP),
    "the map with underscores": ("gpu_scheduling_map", names.MAP),
    "the map with another ending": ("gpu-schedule-map", names.MAP),
    "a misspelt prefix": ("agentflow.gpu/count", names.COUNT),
    "a misspelt prefix and name": ("agentaflow.gpus/keepenv", names.KEEP_ENV),
}


@pytest.mark.parametrize(("key", "nearest"), NEAREST.values(), ids=NEAREST)
def test_the_nearest_known_key_is_named(key: str, nearest: str) -> None:
    """Only keys that users write on pods are named."""
    assert unknown_keys([key]) == (key,)
    assert unknown_key_message(key) == f'annotation "{key}" is unknown: did you mean {nearest}?'


@pytest.mark.parametrize("key", ["agentaflow.gpu/", "agentaflow.gpu/team", "agentaflow.gpu/gpus", LONGEST])
def test_a_key_that_is_near_to_none_leads_to_the_list(key: str) -> None:
    """A wrong guess would mislead. Of a long key the beginning is shown."""
    shown = key if len(key) <= 60 else f"{key[:60]}…"

    assert unknown_keys([key]) == (key,)
    assert unknown_key_message(key) == text_of("an annotation of ours is unknown", key=shown)


KNOWN = {
    **{f"our annotation {key}": key for key in sorted(names.POD_ANNOTATIONS)},
    "an assignment": names.ASSIGNED_UUIDS,
    "an assignment of a later version": "agentaflow.gpu/assigned-reason",
    "what a monitor writes on nodes": names.DEVICES,
    "a label of nodes": names.ENABLED,
    "a label of a workload's pods": names.WORKLOAD,
    "an annotation of others": "kubectl.kubernetes.io/last-applied-configuration",
    "an annotation of others about GPUs": "nvidia.com/gpu.count",
    "a similar key of others": "example.com/gpu-scheduling",
    "a very long key of others": "gpu-scheduling-map" * 20_000,
}


@pytest.mark.parametrize("key", KNOWN.values(), ids=KNOWN)
def test_a_known_or_foreign_key_is_not_unknown(key: str) -> None:
    """Our own keys, also those of nodes and Bindings, and annotations of other programs cause no message."""
    assert unknown_keys([key]) == ()


HOSTILE = {
    "a thousand keys of ours": [f"agentaflow.gpu/{'x' * 57}{number:06}" for number in range(1000)],
    "a thousand nearly right keys": [f"agentaflow.gpu/count{number}" for number in range(1000)],
    "a thousand keys of others that resemble ours": [f"agentaflow{number:04}.gpu/count" for number in range(1000)],
    "keys that the API server would refuse": [f"agentaflow.gpu/{'y' * 100_000}{number}" for number in range(9)],
}


@pytest.mark.parametrize("keys", HOSTILE.values(), ids=HOSTILE)
def test_of_many_keys_few_are_kept_and_named(keys: list[str]) -> None:
    """At most three keys of a pod, each as long as the API server accepts, and three short messages."""
    found = unknown_keys(keys)
    text = "; ".join(map(unknown_key_message, found))

    assert len(found) <= 3
    assert sum(map(len, found)) <= 3 * len(LONGEST)
    assert len(text) < 500
    assert text.isprintable()
