"""Which devices a ResourceClaim selects: the CEL expressions that are read, and what they mean.

LAW: an expression is read only if it is an equality, or several joined by `&&`, of a device's driver, uuid, index or
productName. Everything else is refused: no part of an expression is skipped or guessed.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.placement_map import MAX_NUMBER, device_kind, parse_number
from gpu_scheduler.core.text import quote

EXAMPLE: Final = f'device.attributes["{names.NVIDIA_DRA_DRIVER}"].productName == "NVIDIA A100-SXM4-80GB"'
"""An expression that is read."""

_SPACE: Final = " \t\r\n"
_TOKEN: Final = re.compile(
    r"(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    # Printable ASCII without escapes.
    r"""|(?P<text>"[ !#-\[\]-~]*"|'[ -&(-\[\]-~]*')"""
    r"|(?P<number>[0-9]+)(?![A-Za-z0-9_.])"
    r"|(?P<sign>==|&&|[.\[\]])"
)


@immutable
class DeviceSelector:
    """What a device must be. An empty field accepts any device."""

    driver: str = ""
    uuid: str = ""
    index: int | None = None
    product_name: str = ""

    def __str__(self) -> str:
        """Return it as text for people: `driver gpu.nvidia.com, index 3`; empty if any device is accepted."""
        found = [f"driver {self.driver}"] if self.driver else []
        found += [f"uuid {self.uuid}"] if self.uuid else []
        found += [] if self.index is None else [f"index {self.index}"]
        found += [f"productName {quote(self.product_name)}"] if self.product_name else []
        return ", ".join(found)


ANY_DEVICE: Final = DeviceSelector()


class SelectorError(ValueError):
    """The expressions are not read; the text says why."""


def read_selector(expressions: Iterable[str], driver: str) -> DeviceSelector:
    """Return what the expressions of a request select together; `driver` is that of its class.

    SelectorError if one is not of the form that is read, or if they say one thing twice.
    """
    selector = DeviceSelector(driver)
    for expression in expressions:
        tokens = _Tokens(expression)
        selector = _equality(tokens, selector)
        while tokens.left:
            tokens.expect("&&")
            selector = _equality(tokens, selector)
    return selector


class _Tokens:
    """The tokens of one expression, read one after the other."""

    def __init__(self, expression: str) -> None:
        self.left = expression.strip(_SPACE)
        """What is not read yet."""

    def accept(self, token: str) -> bool:
        """Read this word or sign, if it comes next."""
        found = _TOKEN.match(self.left)
        if found is None or token not in {found["word"], found["sign"]}:
            return False
        self.left = self.left[found.end() :].lstrip(_SPACE)
        return True

    def expect(self, *tokens: str) -> None:
        """Read these words and signs, which must come next."""
        for token in tokens:
            if not self.accept(token):
                raise self._unread()

    def text(self) -> str:
        """Read the text that must come next."""
        return self._value("text")[1:-1]

    def number(self) -> str:
        """Read the number that must come next."""
        return self._value("number")

    def _value(self, kind: str) -> str:
        found = _TOKEN.match(self.left)
        if found is None or found[kind] is None:
            raise self._unread()
        self.left = self.left[found.end() :].lstrip(_SPACE)
        return found[kind]

    def _unread(self) -> SelectorError:
        return SelectorError(f"{quote(self.left)} is not read" if self.left else "it is not complete")


def _equality(tokens: _Tokens, selector: DeviceSelector) -> DeviceSelector:
    """Read one equality. Return the selector with it."""
    tokens.expect("device", ".")
    if tokens.accept("driver"):
        tokens.expect("==")
        _check_driver(tokens.text(), selector)
        return selector
    tokens.expect("attributes", "[")
    _check_driver(tokens.text(), selector)
    tokens.expect("]", ".")
    if tokens.accept("uuid"):
        tokens.expect("==")
        uuid = tokens.text()
        if device_kind(uuid) != "GPU":
            raise SelectorError(f"uuid {quote(uuid)} is not that of a GPU")
        return _added(selector, replace(selector, uuid=uuid), "uuid", new=not selector.uuid)
    if tokens.accept("index"):
        tokens.expect("==")
        text = tokens.number()
        index = parse_number(text)
        if index is None:
            raise SelectorError(f"index {quote(text)} is not a number from 0 to {MAX_NUMBER}")
        return _added(selector, replace(selector, index=index), "index", new=selector.index is None)
    tokens.expect("productName", "==")
    product_name = tokens.text()
    if not product_name:
        raise SelectorError("productName is empty")
    found = replace(selector, product_name=product_name)
    return _added(selector, found, "productName", new=not selector.product_name)


def _check_driver(driver: str, selector: DeviceSelector) -> None:
    if driver != selector.driver:
        raise SelectorError(f"driver {quote(driver)} is not that of its class, {selector.driver}")


def _added(before: DeviceSelector, found: DeviceSelector, attribute: str, *, new: bool) -> DeviceSelector:
    """Return the selector with one more attribute. Two values of one attribute select nothing."""
    if not new and found != before:
        raise SelectorError(f"{attribute} has two values")
    return found
