"""Documentation written in Python source: parsed, never imported."""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

OWN_DOCUMENT_CHARACTERS = 400
SIGNATURE_CHARACTERS = 200
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Described:
    """The documentation of a module (name ''), class or function."""

    name: str
    text: str


@dataclass
class _Module:
    """What a module's own document is made of, and the objects that are documents themselves."""

    short: list[str] = field(default_factory=list)
    long: dict[str, str] = field(default_factory=dict)


def described(source: bytes, module: str) -> Iterator[Described]:
    """The documents of one module, headings first, docstrings dedented as by `inspect.cleandoc`.

    A top-level class (with its methods) or function of at least OWN_DOCUMENT_CHARACTERS is a document; the
    module's docstring and the shorter ones make one more, since a line or two alone is no text to learn from.
    Copies between modules stay: they are real near-duplicates. A name defined twice gets `#2`. Raises
    SyntaxError or ValueError when the source is not Python of this version.
    """
    tree = _parsed(source)
    found = _Module()
    for node in _definitions(tree.body):
        text = (
            _class_text(node, module)
            if isinstance(node, ast.ClassDef)
            else _function_text(node, f"{module}.")
        )
        if len(text) < OWN_DOCUMENT_CHARACTERS:
            found.short.append(text)
        else:
            found.long[_unused(node.name, found.long)] = text
    whole = [ast.get_docstring(tree) or "", *found.short]
    if any(whole):
        yield Described("", _joined([module, *whole]))
    for name, text in found.long.items():
        yield Described(name, text)


def _parsed(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes
        try:
            return ast.parse(source)
        except (RecursionError, MemoryError) as error:
            raise ValueError("nested too deeply") from error


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
    """Classes and functions of a block, those under if, try and with included."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(node.body)
            yield from _definitions(getattr(node, "orelse", []))


def _class_text(node: ast.ClassDef, module: str) -> str:
    methods = [
        _function_text(method, f"{node.name}.")
        for method in _definitions(node.body)
        if not isinstance(method, ast.ClassDef)
    ]
    docstring = ast.get_docstring(node) or ""
    if not docstring and not any(methods):
        return ""
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    return _joined([f"class {module}.{node.name}" + (f"({bases})" if bases else ""), docstring, *methods])


def _function_text(node: Function, prefix: str) -> str:
    docstring = ast.get_docstring(node)
    if not docstring:
        return ""
    signature = f"{prefix}{node.name}({ast.unparse(node.args)})" + (
        f" -> {ast.unparse(node.returns)}" if node.returns else ""
    )
    return _joined(
        [signature if len(signature) <= SIGNATURE_CHARACTERS else f"{prefix}{node.name}(...)", docstring]
    )


def _joined(paragraphs: list[str]) -> str:
    return "\n\n".join(stripped for paragraph in paragraphs if (stripped := paragraph.strip()))


def _unused(name: str, taken: dict[str, str]) -> str:
    if name not in taken:
        return name
    return next(
        numbered for count in range(2, len(taken) + 3) if (numbered := f"{name}#{count}") not in taken
    )
