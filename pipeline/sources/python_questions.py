"""Questions about the functions of installed packages, with answers from their signatures and docstrings."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal, NamedTuple

import pyarrow as pa
from pydantic import Field

from pipeline.sources.docstrings import Documented, functions, unless_python
from pipeline.sources.documents import Batches, SourceDocument, metadata_json, own_id
from pipeline.sources.formats.conversations import conversation
from pipeline.sources.python_docs import Packages, mixed, modules_of, origin_of
from pipeline.sources.source import Rejects, Unit

LONGEST_SIGNATURE = 90
OTHER_PARAMETERS = ("path", "name", "key", "size", "data", "index")
NEAR = 2  # places, in the order of lengths: how far off the answer to another question may be
# What an answer of each kind looks like, as a regular expression.
FORMS = {
    "parameters": r"It takes [\w, ]+\.",
    "count": r"It takes \d+\.",
    "yes_no": r"(Yes|No)\.",
    "module": r"It is in the module [\w.]+\.",
}


class PythonQuestionsConfig(Packages):
    """Questions about the functions of installed packages: what each does, which parameters it takes, how
    many, whether a certain one, and in which module it is. The questions of a module are held out together.
    """

    kind: Literal["python_questions"] = "python_questions"
    """Selects this source."""
    format: Literal["chat", "preferences"]
    """`chat`: each question with its answer. `preferences`: the answer, and a rejected answer. The rejected
    answer is in turns the answer to another question of the same kind and module, of about the same length,
    or the right answer followed by such a wrong one.
    """
    max_documents: int | None = Field(None, ge=1)
    """Questions to take at most from each package. When not set, all."""


class Question(NamedTuple):
    module: str
    name: str
    kind: str
    asked: str
    answer: str


@dataclass(frozen=True)
class PythonQuestionsSource:
    """One unit per package. `max_documents` takes modules in the order of the hashes of their names."""

    corpus: str
    config: PythonQuestionsConfig
    version: ClassVar[str] = "python-questions-1"

    def units(self) -> list[Unit]:
        return self.config.units(None)

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        batches, origin = Batches(self.corpus, rejects), origin_of(unit.name)
        found = islice(self._questions(unit, batches), self.config.max_documents)
        once = {(one.asked, one.answer): one for one in found}.values()
        # Of the same module: one that is learned as the right answer elsewhere would lose unseen to it.
        answers: dict[tuple[str, str], set[tuple[int, str]]] = {}
        for one in once:
            answers.setdefault((one.module, one.kind), set()).add((len(one.answer), one.answer))
        by_length = {place: sorted(known) for place, known in answers.items()}
        for one in once:
            row, rule = {"prompt": one.asked, "completion": one.answer}, None
            if self.config.format == "preferences":
                other = _of_like_length(one, by_length[one.module, one.kind])
                if other is None:
                    continue
                rule = "goes_on" if _number(one, "rule") % 2 else "other_answer"
                rejected = f"{one.answer} {other}" if rule == "goes_on" else other
                row = {"prompt": one.asked, "chosen": one.answer, "rejected": rejected}
            metadata = metadata_json(
                {"module": one.module, "kind": one.kind, "form": FORMS.get(one.kind), "rule": rule}
            )
            source_id = own_id(f"{one.module}:{one.name}:{one.kind}")
            text = conversation(self.config.format, row)
            batches.add(unit.name, SourceDocument(source_id, text, None, origin, None, metadata, one.module))
            yield from batches.full()
        yield from batches.rest()

    def _questions(self, unit: Unit, batches: Batches) -> Iterator[Question]:
        modules = modules_of(unit.name)
        for module in sorted(modules, key=mixed):
            with unless_python(module, origin_of(unit.name), batches):
                for function in functions(modules[module].read_bytes()):
                    yield from _about(module, function)


def _about(module: str, function: Documented) -> Iterator[Question]:
    """Two questions about a function: what the function does, and one that a hash chooses."""
    name, parameters = function.name, function.parameters
    signature = f"{name}({', '.join(parameters)})"
    if len(signature) > LONGEST_SIGNATURE:
        return
    meaning = Question(module, name, "meaning", f"What does {signature} do?", function.sentence)
    yield meaning
    number = _number(meaning, "kind")
    pool = parameters if number % 8 < 4 and parameters else OTHER_PARAMETERS
    guess = pool[number // 8 % len(pool)]
    asked = {
        "parameters": (
            f"Which parameters does {signature} take?",
            f"It takes {', '.join(parameters) or 'nothing'}.",
        ),
        "count": (f"How many parameters does {signature} take?", f"It takes {len(parameters)}."),
        "yes_no": (f"Does {signature} take {guess}?", "Yes." if guess in parameters else "No."),
        "module": (f"In which module is {module}.{name}?", f"It is in the module {module}."),
    }
    kind = list(asked)[number % 4]
    yield Question(module, name, kind, *asked[kind])


def _number(question: Question, purpose: str) -> int:
    """A number that stands for a choice, always the same for a question."""
    return int.from_bytes(mixed(f"{purpose} {question.module}:{question.name}:{question.kind}"))


def _of_like_length(question: Question, answers: list[tuple[int, str]]) -> str | None:
    """Another of the `answers`, ordered by length; None if there is none."""
    place = bisect_left(answers, (len(question.answer), question.answer))
    near = [text for _, text in answers[max(0, place - NEAR) : place + NEAR + 1] if text != question.answer]
    return near[_number(question, "other") % len(near)] if near else None
