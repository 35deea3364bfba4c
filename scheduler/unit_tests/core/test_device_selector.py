"""The CEL expressions of ResourceClaims that are read: equalities, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.pods.device_selector import ANY_DEVICE, EXAMPLE, DeviceSelector, SelectorError, read_selector

DRIVER = "gpu.nvidia.com"
UUID = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
OTHER = "GPU-bbbbbbbb-bbbb-cccc-dddd-eeeeeeeeeeee"
ATTRIBUTES = f'device.attributes["{DRIVER}"]'

# Expressions → what they select.
READ: dict[str, tuple[list[str], DeviceSelector]] = {
    "none": ([], DeviceSelector(DRIVER)),
    "a driver": ([f'device.driver == "{DRIVER}"'], DeviceSelector(DRIVER)),
    "a uuid": ([f'{ATTRIBUTES}.uuid == "{UUID}"'], DeviceSelector(DRIVER, uuid=UUID)),
    "an index": ([f"{ATTRIBUTES}.index == 3"], DeviceSelector(DRIVER, index=3)),
    "index 0": ([f"{ATTRIBUTES}.index == 0"], DeviceSelector(DRIVER, index=0)),
    "the largest index": ([f"{ATTRIBUTES}.index == 2147483647"], DeviceSelector(DRIVER, index=2147483647)),
    "a model": ([EXAMPLE], DeviceSelector(DRIVER, product_name="NVIDIA A100-SXM4-80GB")),
    "single quotes": (
        [f"device.attributes['{DRIVER}'].productName == 'A \"B\"'"],
        DeviceSelector(DRIVER, "", None, 'A "B"'),
    ),
    "an apostrophe": ([f'{ATTRIBUTES}.productName == "it\'s"'], DeviceSelector(DRIVER, product_name="it's")),
    "all of them": (
        [f'device.driver == "{DRIVER}" && {ATTRIBUTES}.uuid == "{UUID}"&&{ATTRIBUTES}.index==1', EXAMPLE],
        DeviceSelector(DRIVER, UUID, 1, "NVIDIA A100-SXM4-80GB"),
    ),
    "spaces everywhere": (
        [f'\n device\t. attributes [ "{DRIVER}" ] . index\r\n ==  7 '],
        DeviceSelector(DRIVER, index=7),
    ),
    "one value twice": ([f"{ATTRIBUTES}.index == 7", f"{ATTRIBUTES}.index == 7"], DeviceSelector(DRIVER, index=7)),
}


@pytest.mark.promise("isolate-13")
@pytest.mark.parametrize(("expressions", "selector"), READ.values(), ids=READ)
def test_equalities_are_read(expressions: list[str], selector: DeviceSelector) -> None:
    """Of driver, uuid, index and productName; several in one expression or in several."""
    assert read_selector(expressions, DRIVER) == selector


# Expression → why it is not read.
UNREAD: dict[str, tuple[str, str]] = {
    "nothing": ("", "it is not complete"),
    "another operator": (f'{ATTRIBUTES}.uuid != "{UUID}"', f'"!= \\"{UUID}\\"" is not read'),
    "a comparison": (f"{ATTRIBUTES}.index >= 3", '">= 3" is not read'),
    "an assignment": (f"{ATTRIBUTES}.index = 3", '"= 3" is not read'),
    "or": (f"{ATTRIBUTES}.index == 3 || {ATTRIBUTES}.index == 4", '"|| device.attributes'),
    "not": (f"!({ATTRIBUTES}.index == 3)", '"!(device.attributes'),
    "parentheses": (f"({ATTRIBUTES}.index == 3)", '"(device.attributes'),
    "a list": (f"{ATTRIBUTES}.index in [3]", '"in [3]" is not read'),
    "a function": (f'{ATTRIBUTES}.uuid.startsWith("GPU-a")', '".startsWith('),
    "the value first": (f"3 == {ATTRIBUTES}.index", '"3 == device.attributes'),
    "true": ("true", '"true" is not read'),
    "a capacity": (f'device.capacity["{DRIVER}"].memory == "40Gi"', '"capacity['),
    "another attribute": (f'{ATTRIBUTES}.type == "gpu"', '"type == \\"gpu\\"" is not read'),
    "an attribute in brackets": (f'{ATTRIBUTES}["uuid"] == "{UUID}"', '"[\\"uuid\\"] =='),
    "an attribute that begins like one": (f"{ATTRIBUTES}.index2 == 3", '"index2 == 3" is not read'),
    "a driver of another name": ("device.drivers == 3", '"drivers == 3" is not read'),
    "an index as a text": (f'{ATTRIBUTES}.index == "3"', '"\\"3\\"" is not read'),
    "a number as a uuid": (f"{ATTRIBUTES}.uuid == 3", '"3" is not read'),
    "a number with a sign": (f"{ATTRIBUTES}.index == -3", '"-3" is not read'),
    "an unsigned number": (f"{ATTRIBUTES}.index == 3u", '"3u" is not read'),
    "a number with a fraction": (f"{ATTRIBUTES}.index == 3.0", '"3.0" is not read'),
    "a hexadecimal number": (f"{ATTRIBUTES}.index == 0x3", '"0x3" is not read'),
    "a leading zero": (f"{ATTRIBUTES}.index == 03", 'index "03" is not a number from 0 to 2147483647'),
    "a number that is too large": (
        f"{ATTRIBUTES}.index == 2147483648",
        'index "2147483648" is not a number from 0 to 2147483647',
    ),
    "a number of hostile length": (f"{ATTRIBUTES}.index == {'9' * 5000}", "is not a number from 0 to 2147483647"),
    "an escape": (f'{ATTRIBUTES}.productName == "A\\u0041"', "is not read"),
    "a raw text": (f'{ATTRIBUTES}.productName == r"A"', "is not read"),
    "three quotes": (f'{ATTRIBUTES}.productName == """A"""', "productName is empty"),
    "an open text": (f'{ATTRIBUTES}.productName == "A', "is not read"),
    "a text beyond ASCII": (f'{ATTRIBUTES}.productName == "Ä"', "is not read"),
    "an empty model": (f'{ATTRIBUTES}.productName == ""', "productName is empty"),
    "a MIG device": (f'{ATTRIBUTES}.uuid == "{UUID.replace("GPU", "MIG")}"', "is not that of a GPU"),
    "a uuid in capitals": (f'{ATTRIBUTES}.uuid == "{UUID.upper()}"', "is not that of a GPU"),
    "a part of a uuid": (f'{ATTRIBUTES}.uuid == "GPU-aaaa"', 'uuid "GPU-aaaa" is not that of a GPU'),
    "an operator at the end": (f"{ATTRIBUTES}.index == 3 &&", "it is not complete"),
    "no operator between two": (f"{ATTRIBUTES}.index == 3 {ATTRIBUTES}.index == 3", '"device.attributes'),
    "a comment": (f"{ATTRIBUTES}.index == 3 // three", '"// three" is not read'),
    "an equality without a value": (f"{ATTRIBUTES}.index ==", "it is not complete"),
    "another driver": (
        'device.driver == "b.example.com"',
        'driver "b.example.com" is not that of its class, gpu.nvidia.com',
    ),
    "attributes of another driver": (
        'device.attributes["b.example.com"].index == 3',
        'driver "b.example.com" is not that of its class, gpu.nvidia.com',
    ),
    "two uuids": (f'{ATTRIBUTES}.uuid == "{UUID}" && {ATTRIBUTES}.uuid == "{OTHER}"', "uuid has two values"),
    "two indices": (f"{ATTRIBUTES}.index == 0 && {ATTRIBUTES}.index == 1", "index has two values"),
    "two models": (f'{EXAMPLE} && {ATTRIBUTES}.productName == "B"', "productName has two values"),
}


@pytest.mark.promise("isolate-13")
@pytest.mark.parametrize(("expression", "why"), UNREAD.values(), ids=UNREAD)
def test_nothing_else_is_read(expression: str, why: str) -> None:
    """Not even beside something that is read: no part is skipped."""
    for expressions in ([expression], [EXAMPLE, expression]):
        with pytest.raises(SelectorError) as raised:
            read_selector(expressions, DRIVER)
        assert why in str(raised.value)


TEXT = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters="\\\"'"), min_size=1, max_size=20
)
SPACE = st.sampled_from(["", " ", "\n", "\t "])


@st.composite
def rendered(draw: st.DrawFn) -> tuple[str, DeviceSelector]:
    """Return an expression, and what it selects."""
    selector = DeviceSelector(
        DRIVER,
        draw(st.sampled_from(["", UUID, OTHER])),
        draw(st.none() | st.integers(0, 2**31 - 1)),
        draw(st.just("") | TEXT),
    )
    quotes = draw(st.sampled_from("\"'"))

    def spaced(*tokens: str) -> str:
        return "".join(f"{draw(SPACE)}{token}{draw(SPACE)}" for token in tokens)

    def text(value: str) -> str:
        return f"{quotes}{value}{quotes}"

    def of(attribute: str, value: str) -> str:
        return spaced("device", ".", "attributes", "[", text(DRIVER), "]", ".", attribute, "==", value)

    terms = [spaced("device", ".", "driver", "==", text(DRIVER))]
    terms += [of("uuid", text(selector.uuid))] if selector.uuid else []
    terms += [] if selector.index is None else [of("index", str(selector.index))]
    terms += [of("productName", text(selector.product_name))] if selector.product_name else []
    return "&&".join(draw(st.permutations(terms))), selector


@given(rendered())
def test_every_rendered_expression_is_read(given_: tuple[str, DeviceSelector]) -> None:
    """With any spaces, quotes and order."""
    expression, selector = given_

    assert read_selector([expression], DRIVER) == selector


WORDS = "device . attributes [ ] driver uuid index productName == && || != ! ( ) in 3 - type startsWith true ? : \\ '"
PIECES = st.sampled_from([*WORDS.split(), f'"{DRIVER}"', f"'{UUID}'", '"A"', " "])


@given(st.lists(PIECES, max_size=30).map("".join))
def test_whatever_is_read_is_an_equality_of_each_part(expression: str) -> None:
    """A text of any tokens is read only if each of its terms is."""
    try:
        whole = read_selector([expression], DRIVER)
    except SelectorError:
        return
    assert read_selector(expression.split("&&"), DRIVER) == whole
    assert not set("|!()?:\\-") & set(expression.replace(UUID, ""))


def test_a_selector_is_shown_to_people() -> None:
    """In messages."""
    assert str(ANY_DEVICE) == ""
    assert str(DeviceSelector(DRIVER)) == "driver gpu.nvidia.com"
    assert str(DeviceSelector(DRIVER, UUID, 0, "A")) == f'driver gpu.nvidia.com, uuid {UUID}, index 0, productName "A"'
