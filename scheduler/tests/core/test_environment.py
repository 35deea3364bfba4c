"""What a container may keep of its own: only what is booked."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_scheduler.core.filters.environment import BY_FIELD, conflict, required_env
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.pods.visible_devices import carried, devices_in, kept_devices
from gpu_scheduler.core.reasons import Reason
from tests.core.build import FIELD_REF, KEEP, PCI, container, own, pod, visible

GPU = "GPU-8f5b1c3e-0c4a-4e5e-9d6b-2f0a7c1d2e3f"
OTHER_GPU = "GPU-00000000-0000-0000-0000-000000000000"
MIG = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"
EVERY = ",".join(map(str, range(1024)))
"""Every index of the largest inventory."""

BOOKED = {
    "a number": ("7", ("7",)),
    "numbers, in their order": ("3,0,10", ("3", "0", "10")),
    "a device twice is booked once": ("1,0,1", ("1", "0")),
    "the largest number": ("2147483647", ("2147483647",)),
    "a GPU's UUID": (GPU, (GPU,)),
    "two of them": (f"{GPU},{OTHER_GPU}", (GPU, OTHER_GPU)),
    "a MIG slice's UUID": (MIG, (MIG,)),
    "all of a node": (EVERY, tuple(EVERY.split(","))),
    "nothing": ("", ()),
    "the word for no GPU": ("-1", ()),
}


@pytest.mark.parametrize(("value", "devices"), BOOKED.values(), ids=BOOKED)
def test_a_value_that_names_devices_may_be_kept(value: str, devices: tuple[str, ...]) -> None:
    """Numbers or full UUIDs, as a map writes them; or no GPU."""
    assert devices == kept_devices(value)


NOT_BOOKED = {
    "an expansion": "$(FOO)",
    "an expansion behind a number": "0,$(FOO)",
    "an expansion that is escaped": "$$(FOO)",
    "a UUID cut short": GPU[:-1],
    "the eight digits that nvidia-smi abbreviates to": GPU[:12],
    "the word GPU alone, which is the beginning of each": "GPU-",
    "a UUID that is too long": GPU + "0",
    "a UUID in capitals": GPU.upper(),
    "a UUID without its word": GPU[4:],
    "an older name of a MIG slice": f"MIG-{GPU}/1/0",
    "a plus sign": "+0,+1",
    "a plus sign in the middle": "0,+1",
    "a minus sign": "-2",
    "the word for no GPU before a number": "-1,0",
    "and behind it": "0,-1",
    "a leading zero": "00",
    "a space before": " 0",
    "a space behind": "0 ",
    "a space between": "0, 1",
    "a tab": "\t0",
    "a line end": "0\n",
    "text behind a number, where CUDA stops": "0,x",
    "text at a number's end": "0x",
    "a number of another base": "0x1",
    "an underscore": "1_0",
    "an exponent": "1e0",
    "other digits": "\u0661",
    "wide digits": "\uff10",
    "an empty part": "0,,1",
    "a comma at the end": "0,",
    "a comma alone": ",",
    "another separator": "0;1",
    "two kinds": f"0,{GPU}",
    "GPU and MIG": f"{GPU},{MIG}",
    "every device, in a word that others understand": "all",
    "no device, in a word that others understand": "none",
    "one such word more": "void",
    "a number that is too large": "2147483648",
    "a number without end": "9" * 500,
    "a space alone": " ",
    "quotes": '"0"',
    "a NUL": "0\0",
    "numbers that take 4,097 characters": ",".join(["10", *map(str, range(1000, 1819))]),
    "100 UUIDs": ",".join([GPU] * 100),
    "a megabyte of them": ",".join(["0"] * 500_000),
}


@pytest.mark.parametrize("value", NOT_BOOKED.values(), ids=NOT_BOOKED)
@pytest.mark.parametrize("kind", ContainerKind)
def test_any_other_value_is_a_conflict(value: str, kind: ContainerKind) -> None:
    """In whatever container, and however it stands beside a right value: the last one would win."""
    for env in ((visible(value), PCI), (visible("2"), PCI, visible(value)), (visible(value), PCI, visible("2"))):
        given_pod = pod("train-1", annotations=KEEP, containers=(container(env, kind),))
        obstacle = conflict(given_pod, given_pod.environment.containers[0], required_env("2"))

        assert kept_devices(value) is None
        assert obstacle is not None
        assert obstacle.reason is Reason.ENV_CONFLICT
        assert len(obstacle.message) < 700


PARTS = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(["", "-1", "+1", "01", " 1", "1 ", "x", "$(A)", GPU, OTHER_GPU, MIG, GPU[:-3], GPU.lower()]),
    st.text("0123456789GPUMIG-abcdef+ \t$()", max_size=8),
)


@given(st.one_of(st.lists(PARTS, max_size=5).map(",".join), st.text(max_size=12)))
@example("-1")
@example("")
def test_what_is_kept_is_what_the_ledger_books_and_what_a_map_could_say(value: str) -> None:
    """One grammar: a kept value is read alike by gate, ledger and map, and formats to itself."""
    devices = kept_devices(value)
    if devices is None:
        return

    assert devices == devices_in(value)
    if value != "-1":
        assert list(devices) == list(dict.fromkeys(value.split(",") if value else ()))
    assert parse_placement_map(f"0=a:{','.join(devices)}").slots[0].devices == devices


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=50))
def test_numbers_that_a_map_may_name_may_be_kept(numbers: list[int]) -> None:
    """Formatting and reading them gives them back."""
    devices = tuple(map(str, numbers))

    assert devices == kept_devices(",".join(devices))


SENTENCES = {
    "a value that can be kept": (
        {},
        visible("7"),
        (
            'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="2" in container "main": it says "7" itself; leave the '
            'variable out, or keep it with annotation agentaflow.gpu/keep-env: "true", and create the pod anew'
        ),
    ),
    "a value that keep-env would not help": (
        {},
        visible("$(FOO)"),
        (
            'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="2" in container "main": it says "$(FOO)" itself; leave the '
            "variable out, and create the pod anew"
        ),
    ),
    "another order": (
        {},
        replace(PCI, value="FASTEST_FIRST"),
        (
            'EnvConflict: cannot set CUDA_DEVICE_ORDER="PCI_BUS_ID" in container "main": it says "FASTEST_FIRST" '
            "itself; leave the variable out, and create the pod anew"
        ),
    ),
    "a kept value that is not booked": (
        KEEP,
        visible("+0,+1"),
        (
            'EnvConflict: cannot keep CUDA_VISIBLE_DEVICES="+0,+1" in container "main": what a container keeps must be '
            "GPU numbers, or full UUIDs GPU-<uuid> or MIG-<uuid>, of one kind, as a map writes them, separated by "
            'single commas, at most 4096 characters; or "" or "-1" for no GPU; correct it (example: '
            'CUDA_VISIBLE_DEVICES: "0,1"), or leave it out, and create the pod anew'
        ),
    ),
    "a kept source": (
        KEEP,
        EnvVar("CUDA_VISIBLE_DEVICES", None),
        'EnvConflict: cannot keep CUDA_VISIBLE_DEVICES from elsewhere (valueFrom) in container "main": what',
    ),
    "a kept field of the pod that is not ours": (
        KEEP,
        replace(FIELD_REF, field_path="metadata.annotations['mine']"),
        'EnvConflict: cannot keep CUDA_VISIBLE_DEVICES from elsewhere (valueFrom) in container "main": what',
    ),
    "a kept order": (
        KEEP,
        replace(PCI, value="FASTEST_FIRST"),
        (
            'EnvConflict: cannot keep CUDA_DEVICE_ORDER="FASTEST_FIRST" in container "main": it must be "PCI_BUS_ID", '
            "the order by which GPUs are numbered and booked; leave the variable out, and create the pod anew"
        ),
    ),
    "a kept order from elsewhere": (
        KEEP,
        EnvVar("CUDA_DEVICE_ORDER", None),
        'EnvConflict: cannot keep CUDA_DEVICE_ORDER from elsewhere (valueFrom) in container "main": it must be',
    ),
}


@pytest.mark.parametrize(("annotations", "entry", "start"), SENTENCES.values(), ids=SENTENCES)
def test_a_conflict_says_what_helps(annotations: dict[str, str], entry: EnvVar, start: str) -> None:
    """Cannot + value + rule + example; keep-env is named only where it would be a cure."""
    given_pod = pod("train-1", annotations=annotations, containers=(container((entry,)),))
    obstacle = conflict(given_pod, given_pod.environment.containers[0], required_env("2"))

    assert obstacle is not None
    assert obstacle.message.startswith(start)


def test_our_own_reference_is_never_a_conflict() -> None:
    """In no container, kept or not."""
    for kind in ContainerKind:
        for annotations in ({}, KEEP):
            given_pod = pod("train-1", annotations=annotations, containers=(container((FIELD_REF, PCI), kind),))

            assert conflict(given_pod, given_pod.environment.containers[0], required_env("2")) is None


def test_what_a_pod_keeps() -> None:
    """The devices of all its containers, once each; nothing where it does not say keep-env."""
    containers = (*own("3,1", "-1", "$(FOO)", "1,2"), container(None), container((FIELD_REF, PCI)))

    assert pod("train-1", annotations=KEEP, containers=containers).request.kept == ("3", "1", "2")
    assert pod("train-1", containers=containers).request.kept == ()


CARRIED = {
    "the first that says": (own("3", "4"), visible("3")),
    "our reference says too": ((container((FIELD_REF, PCI)), *own("4")), BY_FIELD[0]),
    "no GPU is an answer": (own(""), visible("")),
    "what cannot be booked is none": (own("$(FOO)", "4"), visible("4")),
    "of two entries the last": ((container((visible("3"), visible("+4"))), *own("5")), visible("5")),
    "a debug container is not asked": ((container((visible("3"), PCI), ContainerKind.EPHEMERAL),), None),
    "nobody says": ((container(None), container((PCI,))), None),
}


@pytest.mark.parametrize(("containers", "entry"), CARRIED.values(), ids=CARRIED)
def test_how_a_pods_own_containers_see_their_devices(containers: tuple[Container, ...], entry: EnvVar | None) -> None:
    """What a debug container is given."""
    assert carried(containers) == entry
