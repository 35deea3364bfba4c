"""What a container may keep of its own environment: only devices that the ledger can record."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpu_scheduler.core.filters.environment import BY_FIELD, conflict, missing_env, required_env
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.pods.visible_devices import carried, devices_in, kept_devices
from gpu_scheduler.core.reasons import Reason, Unschedulable
from tests.messages import says, text_of
from unit_tests.core.build import FIELD_REF, KEEP, PCI, container, own, pod, visible

GPU = "GPU-8f5b1c3e-0c4a-4e5e-9d6b-2f0a7c1d2e3f"
OTHER_GPU = "GPU-00000000-0000-0000-0000-000000000000"
MIG = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"
EVERY = ",".join(map(str, range(1024)))
"""All indices of the largest inventory."""


def conflict_of(given: Container, annotations: dict[str, str]) -> Unschedulable | None:
    """Return what is wrong with a container of a pod of GPU 2."""
    given_pod = pod("train-1", annotations=annotations, containers=(given,))
    return conflict(given_pod, given_pod.environment.containers[0], required_env("2"))


KEPT = {
    "a number": ("7", ("7",)),
    "numbers, in their order": ("3,0,10", ("3", "0", "10")),
    "a device twice counts once": ("1,0,1", ("1", "0")),
    "the largest number": ("2147483647", ("2147483647",)),
    "a GPU's UUID": (GPU, (GPU,)),
    "two UUIDs": (f"{GPU},{OTHER_GPU}", (GPU, OTHER_GPU)),
    "a MIG device's UUID": (MIG, (MIG,)),
    "all devices of a node": (EVERY, tuple(EVERY.split(","))),
    "an empty value": ("", ()),
    "-1, which means no GPU": ("-1", ()),
}


@pytest.mark.parametrize(("value", "devices"), KEPT.values(), ids=KEPT)
def test_a_value_that_names_devices_may_be_kept(value: str, devices: tuple[str, ...]) -> None:
    """The value has numbers or full UUIDs, as a map writes them, or no GPU."""
    assert devices == kept_devices(value)


NOT_KEPT = {
    "an expansion": "$(FOO)",
    "an expansion after a number": "0,$(FOO)",
    "an expansion that is escaped": "$$(FOO)",
    "a UUID cut short": GPU[:-1],
    "the eight digits that nvidia-smi abbreviates to": GPU[:12],
    "the prefix GPU- alone": "GPU-",
    "a UUID that is too long": GPU + "0",
    "a UUID in capitals": GPU.upper(),
    "a UUID without its prefix": GPU[4:],
    "an older name of a MIG device": f"MIG-{GPU}/1/0",
    "a plus sign": "+0,+1",
    "a plus sign in the middle": "0,+1",
    "a minus sign": "-2",
    "-1 before a number": "-1,0",
    "-1 after a number": "0,-1",
    "a leading zero": "00",
    "a space before": " 0",
    "a space after": "0 ",
    "a space between": "0, 1",
    "a tab": "\t0",
    "a line end": "0\n",
    "text after a number, where CUDA stops": "0,x",
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
    "all, which other programs understand": "all",
    "none, which other programs understand": "none",
    "void, which other programs understand": "void",
    "a number that is too large": "2147483648",
    "a number of 500 digits": "9" * 500,
    "a space alone": " ",
    "quotes": '"0"',
    "a NUL": "0\0",
    "numbers that take 4,097 characters": ",".join(["10", *map(str, range(1000, 1819))]),
    "100 UUIDs": ",".join([GPU] * 100),
    "100 kilobytes of numbers": ",".join(["0"] * 50_000),
}


@pytest.mark.promise("env-12", "env-14")
@pytest.mark.parametrize("value", NOT_KEPT.values(), ids=NOT_KEPT)
@pytest.mark.parametrize("kind", ContainerKind)
def test_any_other_value_is_a_conflict(value: str, kind: ContainerKind) -> None:
    """This holds in every kind of container and beside a valid value, because the last value is the effective one."""
    for env in ((visible(value), PCI), (visible("2"), PCI, visible(value)), (visible(value), PCI, visible("2"))):
        unschedulable = conflict_of(container(env, kind), KEEP)

        assert kept_devices(value) is None
        assert unschedulable is not None
        assert unschedulable.reason is Reason.ENV_CONFLICT
        assert len(unschedulable.message) < 700


PARTS = st.one_of(
    st.integers(0, 12).map(str),
    st.sampled_from(["", "-1", "+1", "01", " 1", "1 ", "x", "$(A)", GPU, OTHER_GPU, MIG, GPU[:-3], GPU.lower()]),
    st.text("0123456789GPUMIG-abcdef+ \t$()", max_size=8),
)


@given(st.one_of(st.lists(PARTS, max_size=5).map(",".join), st.text(max_size=12)))
@example("-1")
@example("")
def test_a_kept_value_is_read_alike_by_gate_ledger_and_map(value: str) -> None:
    """There is one grammar, and a kept value formats to itself."""
    devices = kept_devices(value)
    if devices is None:
        return

    assert devices == devices_in(value)
    if value != "-1":
        assert list(devices) == list(dict.fromkeys(value.split(",") if value else ()))
    assert parse_placement_map(f"0=a:{','.join(devices)}").slots[0].devices == devices


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=50))
def test_numbers_that_a_map_may_name_may_be_kept(numbers: list[int]) -> None:
    """Numbers that are formatted and read again are the same."""
    devices = tuple(map(str, numbers))

    assert devices == kept_devices(",".join(devices))


SENTENCES = {
    "a value that can be kept": (
        {},
        visible("7"),
        ("EnvConflict", 'CUDA_VISIBLE_DEVICES="2"', '"main"', '"7"', "agentaflow.gpu/keep-env"),
    ),
    "a value that keep-env could not keep": (
        {},
        visible("$(FOO)"),
        ("EnvConflict", text_of("a container sets a value that keep-env could not keep")),
    ),
    "another order": (
        {},
        replace(PCI, value="FASTEST_FIRST"),
        ("EnvConflict", 'CUDA_DEVICE_ORDER="PCI_BUS_ID"', '"main"', '"FASTEST_FIRST"'),
    ),
    "a kept value that names no devices": (
        KEEP,
        visible("+0,+1"),
        (
            "EnvConflict",
            'CUDA_VISIBLE_DEVICES="+0,+1"',
            '"main"',
            "4096 characters",
            '""',
            '"-1"',
            'CUDA_VISIBLE_DEVICES: "0,1"',
        ),
    ),
    "a kept source": (
        KEEP,
        EnvVar("CUDA_VISIBLE_DEVICES", None),
        ("EnvConflict", text_of("a value from elsewhere cannot be kept")),
    ),
    "a kept field of the pod that is not ours": (
        KEEP,
        replace(FIELD_REF, field_path="metadata.annotations['mine']"),
        ("EnvConflict", '"main"', "4096 characters", '""', '"-1"', 'CUDA_VISIBLE_DEVICES: "0,1"'),
    ),
    "a kept order": (
        KEEP,
        replace(PCI, value="FASTEST_FIRST"),
        ("EnvConflict", 'CUDA_DEVICE_ORDER="FASTEST_FIRST"', '"main"', '"PCI_BUS_ID"'),
    ),
    "a kept order from elsewhere": (
        KEEP,
        EnvVar("CUDA_DEVICE_ORDER", None),
        ("EnvConflict", text_of("an order from elsewhere cannot be kept")),
    ),
}


@pytest.mark.promise("gate-3")
@pytest.mark.parametrize(("annotations", "entry", "said"), SENTENCES.values(), ids=SENTENCES)
def test_a_conflict_names_its_remedy(annotations: dict[str, str], entry: EnvVar, said: tuple[str, ...]) -> None:
    """The message has "cannot", the value, the rule and an example; it names keep-env only where this is a remedy."""
    unschedulable = conflict_of(container((entry,)), annotations)

    assert unschedulable is not None
    says(unschedulable.message, *said)


@pytest.mark.promise("gate-3")
def test_a_conflict_of_a_debug_container_names_its_remedy() -> None:
    """keep-env is no remedy. A pod keeps its debug containers for ever, so a pod that waits with one is made anew."""
    unschedulable = conflict_of(container((visible("7"),), ContainerKind.EPHEMERAL), KEEP)

    assert unschedulable is not None
    says(unschedulable.message, "EnvConflict", 'CUDA_VISIBLE_DEVICES="2"', '"main"', '"7"')


NOT_INJECTED = {
    "no environment": (None, required_env("2"), 'CUDA_VISIBLE_DEVICES="2"'),
    "a missing order": ((visible("2"),), required_env("2"), 'CUDA_DEVICE_ORDER="PCI_BUS_ID"'),
    "a missing reference": ((PCI,), BY_FIELD, "CUDA_VISIBLE_DEVICES"),
}


@pytest.mark.promise("gate-2")
@pytest.mark.parametrize(("env", "needed", "entry"), NOT_INJECTED.values(), ids=NOT_INJECTED)
def test_a_missing_variable_names_its_remedy(
    env: tuple[EnvVar, ...] | None, needed: tuple[EnvVar, ...], entry: str
) -> None:
    """The pod's text is right: a new pod of the same text is completed at admission."""
    unschedulable = missing_env(pod(), container(env), needed)

    assert unschedulable is not None
    says(unschedulable.message, "EnvNotInjected", '"main"', entry)


def test_our_own_reference_is_no_conflict() -> None:
    """This holds in every kind of container, with and without keep-env."""
    for kind in ContainerKind:
        for annotations in ({}, KEEP):
            assert conflict_of(container((FIELD_REF, PCI), kind), annotations) is None


def test_a_pod_keeps_the_devices_of_its_containers() -> None:
    """Each device counts once; a pod without keep-env keeps no devices."""
    containers = (*own("3,1", "-1", "$(FOO)", "1,2"), container(None), container((FIELD_REF, PCI)))

    assert pod("train-1", annotations=KEEP, containers=containers).request.kept == ("3", "1", "2")
    assert pod("train-1", containers=containers).request.kept == ()


CARRIED = {
    "the first container with devices": (own("3", "4"), visible("3")),
    "our reference counts too": ((container((FIELD_REF, PCI)), *own("4")), BY_FIELD[0]),
    "an empty value counts too": (own(""), visible("")),
    "a value that names no devices does not count": (own("$(FOO)", "4"), visible("4")),
    "the last of two entries": ((container((visible("3"), visible("+4"))), *own("5")), visible("5")),
    "a debug container does not count": ((container((visible("3"), PCI), ContainerKind.EPHEMERAL),), None),
    "no container has the variable": ((container(None), container((PCI,))), None),
}


@pytest.mark.parametrize(("containers", "entry"), CARRIED.values(), ids=CARRIED)
def test_a_debug_container_gets_the_devices_of_its_pod(containers: tuple[Container, ...], entry: EnvVar | None) -> None:
    """The entry is that of the first container of the pod with a usable value."""
    assert carried(containers) == entry
