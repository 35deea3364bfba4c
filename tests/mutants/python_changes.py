"""Makes mutants of Python code: mutmut's operators on given lines, and two that it lacks.

mutmut itself switches its mutants on inside one process and leaves out decorated functions and constants. Here each
mutant is the whole text of a file, so that programs and other processes run it too.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from random import Random

LEFT_OUT: Final = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)
"""No test can notice a changed annotation, and a changed import or decorator ends the program at its start."""
ENDS: Final = frozenset({"len", "isinstance", "cast"})
"""With an argument less, these calls always raise, or never matter."""


@dataclass(frozen=True, slots=True)
class Change:
    """One mutant: a file of the checkout, the line that differs, and both texts of the file."""

    file: str
    line: int
    before: str
    after: str

    @property
    def words(self) -> str:
        """What was removed and what was added, in one line."""
        lines = list(difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), n=0, lineterm=""))[3:]
        removed, added = (" ".join(line[1:].strip() for line in lines if line[:1] == sign) for sign in "-+")
        return f"{removed} → {added or '(nothing)'}"

    @property
    def diff(self) -> str:
        """The mutant as a patch."""
        texts = (self.before.splitlines(), self.after.splitlines())
        return "\n".join(difflib.unified_diff(*texts, f"a/{self.file}", f"b/{self.file}", n=2, lineterm=""))


def _negated(node: cst.If | cst.While | cst.CompIf) -> Iterable[cst.CSTNode]:
    """`if a:` becomes `if not (a):`."""
    if not isinstance(node.test, cst.UnaryOperation):
        inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        test: cst.BaseExpression = cst.UnaryOperation(cst.Not(), inner)
        if isinstance(node, cst.CompIf):
            yield node.with_changes(test=test)
        else:
            yield node.with_changes(test=test, **_spaced(node))


def _spaced(node: cst.If | cst.While) -> dict[str, cst.SimpleWhitespace]:
    """A test in parentheses may stand without a space, `not` may not."""
    name = "whitespace_before_test" if isinstance(node, cst.If) else "whitespace_after_while"
    return {name: cst.SimpleWhitespace(" ")}


def _deleted(node: cst.Expr | cst.Raise | cst.Return) -> Iterable[cst.CSTNode]:
    """A call and `raise` become `pass`, `return a` becomes `return None`."""
    if isinstance(node, cst.Return):
        if node.value is not None and not (isinstance(node.value, cst.Name) and node.value.value == "None"):
            yield node.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))
    elif isinstance(node, cst.Raise) or isinstance(node.value, (cst.Call, cst.Await)):
        yield cst.Pass()


OPERATORS: Final[Sequence[tuple[type | tuple[type, ...], Callable[..., Iterable[cst.CSTNode]]]]] = (
    *mutation_operators,
    ((cst.If, cst.While, cst.CompIf), _negated),
    ((cst.Expr, cst.Raise, cst.Return), _deleted),
)


class _Finder(cst.CSTVisitor):
    """Collects what the operators make of the nodes that begin on the given lines."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, lines: AbstractSet[int]) -> None:
        super().__init__()
        self._lines = lines
        self._line = 0
        self.found: list[tuple[int, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Ask each operator; return whether the node's children are to be visited."""
        if isinstance(node, LEFT_OUT) or _for_types_only(node):
            return False
        position = self.get_metadata(PositionProvider, node, None)
        # libcst knows no position of some operators; they follow the node that has them.
        self._line = position.start.line if position else self._line
        if self._line in self._lines and not _ends(node):
            for kind, operator in OPERATORS:
                if isinstance(node, kind):
                    self.found.extend((self._line, node, other) for other in operator(node))
        return True


def _ends(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in ENDS


def _for_types_only(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.If) and isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING"


def python_changes(file: str, text: str, lines: AbstractSet[int], chance: Random | None = None) -> Iterator[Change]:
    """Yield the mutants of these lines, in random order where a chance is given, each when it is asked for.

    Those that Python cannot compile are left out.
    """
    wrapper = MetadataWrapper(cst.parse_module(text))
    finder = _Finder(lines)
    wrapper.visit(finder)
    if chance:
        chance.shuffle(finder.found)
    known = {text}
    for line, node, other in finder.found:
        replaced = wrapper.module.deep_replace(node, other)
        after = replaced.code if isinstance(replaced, cst.Module) else text
        if after not in known and _compiles(after):
            known.add(after)
            yield Change(file, line, text, after)


def _compiles(code: str) -> bool:
    try:
        compile(code, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
