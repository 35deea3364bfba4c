from typing import Any

import pytest

from gpu_scheduler.cli.jsonpath import JsonPathError, read_relaxed, read_template, sort_key, written

DATA: dict[str, Any] = {
    "kind": "List",
    "labels": {"kubernetes.io/arch": "amd64"},
    "items": [
        {"name": "node10", "free": 3, "ok": True, "gpus": {"held": 4, "odd": 0}, "devices": ["0", "1"], "why": None},
        {"name": "node2", "free": 12, "ok": False, "gpus": {"held": 0, "odd": 9}, "devices": [], "why": "bad\x1b"},
    ],
}

TEMPLATES = {
    "a field of the list": ("{.kind}", "List"),
    "text around an expression": ("a {.kind} b", "a List b"),
    "values are joined by spaces": ("{.items[*].name}", "node10 node2"),
    "the dollar may stand there": ("{$.kind}", "List"),
    "spaces at the ends of an expression do not count": ("{ .kind }", "List"),
    "an element": ("{.items[0].name}", "node10"),
    "an element from the end": ("{.items[-1].name}", "node2"),
    "a slice": ("{.items[0:1].name}", "node10"),
    "a slice with a step": ("{.items[::2].name}", "node10"),
    "some elements": ("{.items[1,0].name}", "node2 node10"),
    "some fields": ("{.items[0]['name','free']}", "node10 3"),
    "a key with dots": (r"{.labels.kubernetes\.io/arch}", "amd64"),
    "a key with dots in brackets": (r"{.labels['kubernetes\.io/arch']}", "amd64"),
    "all values of an object": ("{.items[*].gpus.*}", "4 0 0 9"),
    "all elements by a dot": ("{.items.*.name}", "node10 node2"),
    "values at any depth": ("{..name}", "node10 node2"),
    "values at any depth below a field": ("{.items..odd}", "0 9"),
    "a list": ("{.items[0].devices}", '["0","1"]'),
    "an object": ("{.items[0].gpus}", '{"held":4,"odd":0}'),
    "the whole": ("{.labels}{@.kind}{$}"[:9], '{"kubernetes.io/arch":"amd64"}'),
    "a truth": ("{.items[0].ok}", "true"),
    "a missing field is nothing": ("{.items[*].none}", ""),
    "a field of a text is nothing": ("{.kind.none}", ""),
    "a null is nothing": ("{.items[0].why}", ""),
    "a text is printable": ("{.items[1].why}", "bad\\x1b"),
    "a loop": ('{range .items[*]}{.name}{"\\t"}{.free}{"\\n"}{end}', "node10\t3\nnode2\t12\n"),
    "a loop in a loop": ("{range .items[*]}{.name}{range .devices[*]}<{@}>{end};{end}", "node10<0><1>;node2;"),
    "a text in other quotes": ("{'it is '}{.kind}", "it is List"),
    "a bracket in quotes": ('{"}"}', "}"),
    "items with a value": ("{.items[?(@.why)].name}", "node2"),
    "items with this text": ('{.items[?(@.name=="node2")].free}', "12"),
    "items with another text": ("{.items[?(@.name!='node2')].free}", "3"),
    "items with this truth": ("{.items[?(@.ok==true)].name}", "node10"),
    "items with more": ("{.items[?(@.free>5)].name}", "node2"),
    "items with less than another field": ("{.items[?(@.free<=@.gpus.held)].name}", "node10"),
    "items with at least": ("{.items[?(@.free>=12)].name}", "node2"),
    "items with less": ("{.items[?(@.gpus.held<4)].name}", "node2"),
    "an empty list": ("{.items[1].devices[*]}", ""),
}


@pytest.mark.promise("cli-9")
@pytest.mark.parametrize(("template", "text"), TEMPLATES.values(), ids=TEMPLATES)
def test_templates(template: str, text: str) -> None:
    """What kubectl prints too, except of nulls, which count as missing."""
    assert written(read_template(template), DATA) == text


WRONG = {
    "no braces": (".items", "it has no expression in braces"),
    "an open brace": ("{.items", '"{.items" has no "}"'),
    "a brace too many": ("{.kind}}", '"}" has no "{" before it'),
    "an empty expression": ("{}", "an expression is empty"),
    "no dot": ("{items}", '"items" is no field: a field begins with a dot'),
    "a name without a dot behind a bracket": ("{.items[*]name}", '"name" is no field'),
    "a dot without a name": ("{.items.}", '"." is no field'),
    "a dot before a bracket": ("{.[0]}", '".[0]" has no name after its dot'),
    "everything at any depth": ("{..*}", '"..*" is no path'),
    "a bracket that stays open": ("{.items[0}", '"[0" has no "]"'),
    "a word as index": ("{.items[first]}", "[first] is no index: it must be a number, a slice as 0:2, a key as 'name'"),
    "a key in double quotes": ('{.items["name"]}', "is no index"),
    "nothing as index": ("{.items[]}", "[] is no index"),
    "a slice without steps": ("{.items[0:1:0]}", "is no index"),
    "an end without a beginning": ("{end}", "{end} has no {range …} before it"),
    "a beginning without an end": ("{range .items[*]}x", "{range …} has no {end}"),
    "two texts": ('{"a" "b"}', "is no text: it must begin and end with one quote"),
    "a text that stays open": ('{"}', 'has no "}"'),
    "an unknown escape": (r'{"\x"}', r"is no escape: it must be one of \n"),
    "an unknown comparison": ("{.items[?(@.free=>3)]}", '"=>" is no comparison: it must be one of ==, !=, <'),
    "a word as value": ("{.items[?(@.name==node2)]}", '"node2" is no value: it must be a path, a number'),
}


@pytest.mark.promise("cli-9")
@pytest.mark.parametrize(("template", "why"), WRONG.values(), ids=WRONG)
def test_wrong_templates_are_refused(template: str, why: str) -> None:
    """With the part that is wrong, and the rule."""
    with pytest.raises(JsonPathError) as error:
        read_template(template)

    assert why in str(error.value)


UNSUITED = {
    "an index behind the end": ("{.items[5]}", "index 5 is out of range: the list has 2"),
    "an index of an object": ("{.labels[0]}", "[…] takes a part of a list, and stands behind an object"),
    "an index of a text": ("{.kind[*]}", "stands behind a text"),
    "an index of a number": ("{.items[0].free[0]}", "stands behind a number"),
    "a text compared with a number": ("{.items[?(@.name==5)]}", "node10 and 5 cannot be compared"),
    "several values compared": ("{.items[?(@.devices[*]==5)]}", "compares several values with each other"),
}


@pytest.mark.parametrize(("template", "why"), UNSUITED.values(), ids=UNSUITED)
def test_templates_that_do_not_suit_the_data(template: str, why: str) -> None:
    """The text says what the data are."""
    with pytest.raises(JsonPathError) as error:
        written(read_template(template), DATA)

    assert why in str(error.value)


RELAXED = {text: ["node10"] for text in ("name", ".name", "{name}", "{.name}")}


@pytest.mark.parametrize(("text", "found"), RELAXED.items())
def test_a_single_path_needs_neither_braces_nor_dot(text: str, found: list[str]) -> None:
    """As for --sort-by and custom columns of kubectl."""
    assert read_relaxed(text).find(DATA["items"][0]) == found


def test_a_single_path_is_no_template() -> None:
    """Two expressions are none."""
    with pytest.raises(JsonPathError, match="it must be one path"):
        read_relaxed("{.name}{.free}")


def test_values_sort_as_people_expect() -> None:
    """Missing ones first, numbers by size, and numbers in texts as numbers."""
    values: list[list[Any]] = [["node10"], [10], ["node2"], [], [2], [False]]

    assert sorted(values, key=sort_key) == [[], [False], [2], [10], ["node2"], ["node10"]]
