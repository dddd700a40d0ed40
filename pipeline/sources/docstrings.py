"""Docstrings of Python source, which is parsed and never imported."""

import ast
import itertools
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pipeline.sources.documents import Batches, SourceDocument, metadata_json, own_id
from pipeline.sources.source import Reason

OWN_DOCUMENT_CHARACTERS = 400
SIGNATURE_CHARACTERS = 200
SENTENCE = re.compile(r"[^.!?]{19,160}\.(?=\s|$)")  # the first of a docstring, neither short nor long
Function = ast.FunctionDef | ast.AsyncFunctionDef


def module_documents(module: str, source: bytes, origin: str, batches: Batches) -> Iterator[SourceDocument]:
    """The documents of a module, with ids `module:name`. A module that does not parse is rejected."""
    with unless_python(module, origin, batches):
        for name, text in described(source, module):
            metadata = metadata_json({"module": module, "name": name})
            source_id = own_id(f"{module}:{name}")
            yield SourceDocument(source_id, text, None, origin, None, metadata)


@contextmanager
def unless_python(module: str, origin: str, batches: Batches) -> Iterator[None]:
    """Rejects a module that turns out not to be Python of this version."""
    try:
        yield
    except SyntaxError as error:
        batches.reject(f"{origin}/{module}", error.lineno, Reason.NOT_PYTHON, error.msg)
    except ValueError as error:
        batches.reject(f"{origin}/{module}", None, Reason.NOT_PYTHON, str(error))


def described(source: bytes, module: str) -> Iterator[tuple[str, str]]:
    """The documents of a module, by name ('' for the module's own): headings first, docstrings dedented as
    by `inspect.cleandoc`.

    A top-level class (with its methods) or function of at least OWN_DOCUMENT_CHARACTERS is a document. The
    module's docstring and the shorter ones form one more, because a line or two alone is too little text to
    learn from. Copies between modules stay: they are real near-duplicates. A name defined twice gets `#2`.
    Raises SyntaxError or ValueError when the source is not Python of this version.
    """
    tree = _parsed(source)
    short: list[str] = []
    long: dict[str, str] = {}
    for node in _definitions(tree.body):
        if isinstance(node, ast.ClassDef):
            text = _class_text(node, module)
        else:
            text = _function_text(node, f"{module}.")
        if len(text) < OWN_DOCUMENT_CHARACTERS:
            short.append(text)
        else:
            long[_unused(node.name, long)] = text
    together = [ast.get_docstring(tree) or "", *short]
    if any(together):
        yield "", _joined([module, *together])
    yield from long.items()


class Documented(NamedTuple):
    """A public function or method: its name in the module, its parameters without `self`, `cls` and those
    with a star, and the first sentence of its docstring.
    """

    name: str
    parameters: tuple[str, ...]
    sentence: str


def functions(source: bytes) -> Iterator[Documented]:
    """The functions whose docstrings begin with an ASCII sentence. Raises SyntaxError or ValueError."""
    names: set[str] = set()
    for node in _definitions(_parsed(source).body):
        is_class = isinstance(node, ast.ClassDef)
        prefix = f"{node.name}." if is_class else ""
        for function in _definitions(node.body) if is_class else [node]:
            name = prefix + function.name
            if isinstance(function, ast.ClassDef) or function.name.startswith("_") or name in names:
                continue
            names.add(name)
            begin = SENTENCE.match(" ".join((ast.get_docstring(function) or "").partition("\n\n")[0].split()))
            if begin and begin[0].isascii():
                given = function.args
                found = (one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))
                yield Documented(name, tuple(one for one in found if one not in ("self", "cls")), begin[0])


def _parsed(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's invalid escapes
        try:
            return ast.parse(source)
        except (RecursionError, MemoryError) as error:
            raise ValueError("nested too deeply") from error


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
    """Classes and functions of a block, including those under if, try and with."""
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
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    signature = f"{prefix}{node.name}({ast.unparse(node.args)}){returns}"
    if len(signature) > SIGNATURE_CHARACTERS:
        signature = f"{prefix}{node.name}(...)"
    return _joined([signature, docstring])


def _joined(paragraphs: list[str]) -> str:
    return "\n\n".join(stripped for paragraph in paragraphs if (stripped := paragraph.strip()))


def _unused(name: str, taken: dict[str, str]) -> str:
    if name not in taken:
        return name
    return next(unused for count in itertools.count(2) if (unused := f"{name}#{count}") not in taken)
