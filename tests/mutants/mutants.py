"""The mutants of a source file: one small change each, that a test should notice."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline", "trainer")

SWAPPED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "//"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"), ast.BitOr: (r"\|", "&"),
}  # fmt: skip

# What these do is for people to read, or for mypy.
MESSAGES = re.compile(
    r"(^|\.)(log|logger|warnings|logging)\.|^(print|log|warn|cast|TypeVar|NewType)$|\.add_argument$"
)
UNSEEN = {"strict", "repr", "stacklevel", "exist_ok", "missing_ok", "ensure_ascii", "copy", "non_blocking"}
COMPILED = {"kernel", "borrowing", "njit"}
WORD = re.compile(r"[\w./-]{1,40}")


@dataclass(frozen=True)
class Mutant:
    """`source[start:stop]` becomes `text`, in bytes. Lines from `first` to `last` are those of the statement.

    `ran` says whether coverage.py sees the lines executed in a test. Those of a module are executed once, at
    its import, and those of a kernel as machine code.
    """

    file: str
    line: int
    first: int
    last: int
    start: int
    stop: int
    text: str
    ran: bool
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.start}-{self.stop}={self.text}"


def of_file(file: str) -> list[Mutant]:
    """All of `file`, whose path begins at the checkout."""
    return list(_Walk(file, (ROOT / file).read_bytes()).mutants)


class _Walk:
    def __init__(self, file: str, source: bytes):
        self._file, self._source = file, source
        self._begins = [0]
        for line in source.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))
        self.mutants = self._block(ast.parse(source).body, ran=False)

    def _block(self, body: list[ast.stmt], ran: bool) -> Iterator[Mutant]:
        for statement in body:
            yield from self._statement(statement, ran)

    def _statement(self, node: ast.stmt, ran: bool) -> Iterator[Mutant]:
        """Of the statement without the statements in it, then of those."""
        if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom) or _is_for_people(node):
            return
        blocks = [
            inner
            for name in ("body", "orelse", "finalbody")
            for inner in [getattr(node, name, None)]
            if isinstance(inner, list)
        ]
        within = [statement for block in blocks for statement in block]
        last = min((statement.lineno for statement in within), default=node.end_lineno or node.lineno)
        last = max(node.lineno, last - 1) if within else last
        for start, stop, text in self._changes(node):
            yield self._mutant(start, stop, text, node.lineno, last, ran)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named = {_name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list}
            ran = not named & COMPILED
        for block in blocks:
            yield from self._block(block, ran)
        for handler in getattr(node, "handlers", []) + getattr(node, "cases", []):
            yield from self._block(handler.body, ran)

    def _mutant(self, start: int, stop: int, text: str, first: int, last: int, ran: bool) -> Mutant:
        line = self._source.count(b"\n", 0, start) + 1
        begin, end = self._begins[line - 1], self._source.find(b"\n", stop)
        before = self._source[begin:end].decode()
        after = (self._source[begin:start] + text.encode() + self._source[stop:end]).decode()
        return Mutant(
            self._file,
            line,
            first,
            last,
            start,
            stop,
            text,
            ran,
            " ".join(before.split()),
            " ".join(after.split()),
        )

    def _changes(self, node: ast.stmt) -> Iterator[tuple[int, int, str]]:
        """Start, stop and new text of each change."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                    yield from self._expression(default)
            case ast.ClassDef() | ast.With() | ast.AsyncWith():
                for item in getattr(node, "items", []):
                    yield from self._expression(item.context_expr)
            case ast.AnnAssign(value=ast.expr() as value) | ast.For(iter=value) | ast.While(test=value):
                yield from self._expression(value)
            case ast.Match(subject=value):
                yield from self._expression(value)
            case ast.If(test=test):
                yield from self._negated(test)
                yield from self._expression(test)
            case ast.Return(value=ast.expr() as value):
                if not (isinstance(value, ast.Constant) and value.value is None):
                    yield (*self._span(value), "None")
                yield from self._expression(value)
            case ast.Break() | ast.Continue():
                yield (*self._span(node), "continue" if isinstance(node, ast.Break) else "break")
            case ast.Expr(value=ast.Call() as call):
                yield (*self._span(node), "pass")
                yield from self._expression(call)
            case ast.AugAssign():
                yield from self._operator(node.target, node.op, node.value, "=")
                yield from self._expression(node.value)
            case ast.Assign(value=value, targets=[ast.Name(id="__all__" | "VERSION")]):
                pass
            case ast.Assign(value=value):
                yield from self._expression(value)

    def _expression(self, node: ast.expr) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.JoinedStr() | ast.Lambda(body=ast.Constant()):
                return  # Python 3.11 does not say where the parts of an f-string are
            case ast.Subscript(value=ast.Name(id="Literal" | "Annotated")):
                return
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                    yield from self._operator(left, operator, right)
                    for side in (left, right):
                        yield from self._word(side)
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._operator(left, node.op, right)
            case ast.BinOp() if not _is_type(node) and not _is_text(node):
                yield from self._operator(node.left, node.op, node.right)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                yield (*self._span(node), self._text(operand))
            case ast.Constant(value=bool(value)):
                yield (*self._span(node), str(not value))
            case ast.Constant(value=int(value)):
                yield (*self._span(node), str(value + 1))
            case ast.IfExp(test=test):
                yield from self._negated(test)
            case ast.Subscript(slice=key):
                yield from self._word(key)
            case ast.Dict(keys=keys):
                for key in filter(None, keys):
                    yield from self._word(key)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword) and child.arg not in UNSEEN:
                child = child.value
            if isinstance(child, ast.comprehension):
                for test in child.ifs:
                    yield from self._negated(test)
                for part in (child.iter, *child.ifs):
                    yield from self._expression(part)
            if isinstance(child, ast.expr) and not (
                isinstance(child, ast.Call) and MESSAGES.search(_name(child.func))
            ):
                yield from self._expression(child)

    def _operator(
        self, left: ast.expr, operator: ast.AST, right: ast.expr, end: str = ""
    ) -> Iterator[tuple[int, int, str]]:
        if type(operator) in SWAPPED:
            pattern, new = SWAPPED[type(operator)]
            start, stop = self._span(left)[1], self._span(right)[0]
            between = self._source[start:stop].decode()
            if (found := re.search(pattern + end, between)) and "#" not in between:
                yield start + found.start(), start + found.end(), new + end

    def _negated(self, test: ast.expr) -> Iterator[tuple[int, int, str]]:
        if not isinstance(test, ast.Compare) and not isinstance(
            test, ast.UnaryOp
        ):  # the same as their own mutants
            yield (*self._span(test), f"not ({self._text(test)})")

    def _word(self, node: ast.expr) -> Iterator[tuple[int, int, str]]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WORD.fullmatch(node.value):
            yield (*self._span(node), repr(node.value + "_"))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._begins[node.lineno - 1] + node.col_offset,
            self._begins[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        start, stop = self._span(node)
        return self._source[start:stop].decode()


def _name(node: ast.expr) -> str:
    """Of what is called, with dots."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_for_people(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=called)):
            return bool(MESSAGES.search(_name(called)))
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
            return True
        case ast.FunctionDef(name="__repr__"):
            return True
    return False


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


def _is_type(node: ast.BinOp) -> bool:
    """Whether a union, as in `isinstance(x, A | B)`."""
    names = [_name(side).rpartition(".")[2] for side in (node.left, node.right)]
    is_none = isinstance(node.right, ast.Constant) and node.right.value is None
    types = ("int", "str", "float", "bool", "bytes", "dict", "list")
    return isinstance(node.op, ast.BitOr) and (
        is_none or any(name in types or (name[:1].isupper() and not name.isupper()) for name in names)
    )
