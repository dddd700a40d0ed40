"""Questions about the functions of installed packages, with answers from their signatures and docstrings."""

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
NEAREST = 4  # answers of like length, from which that to another question is taken


class PythonQuestionsConfig(Packages):
    """Questions about the functions of installed packages: what each does, which parameters it takes, how
    many, whether a certain one, and in which module it is. The questions of a module are held out together.
    """

    kind: Literal["python_questions"] = Field("python_questions", description="Selects this source.")
    format: Literal["chat", "preferences"] = Field(
        description="`chat`: each with its answer. `preferences`: the answer, and in turns that to another "
        "question of its kind, of about its length, or both, one after the other."
    )
    max_documents: int | None = Field(
        None, ge=1, description="Questions to take at most from each package. When not set, all."
    )


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
        once = {
            (one.asked, one.answer): one
            for one in islice(self._questions(unit, batches), self.config.max_documents)
        }
        others = _Others(list(once.values()))
        for one in once.values():
            row, rule = {"prompt": one.asked, "completion": one.answer}, None
            if self.config.format == "preferences":
                other = others.near(one)
                if other is None:
                    continue
                rule = "goes_on" if _number(one, "rule") % 2 else "other_answer"
                rejected = f"{one.answer} {other}" if rule == "goes_on" else other
                row = {"prompt": one.asked, "chosen": one.answer, "rejected": rejected}
            facts: dict[str, object] = {
                "module": one.module,
                "kind": one.kind,
                **({"rule": rule} if rule else {}),
            }
            source_id = own_id(f"{one.module}:{one.name}:{one.kind}")
            text = conversation(self.config.format, row)
            document = SourceDocument(source_id, text, None, origin, None, metadata_json(facts), one.module)
            batches.add(unit.name, document)
            yield from batches.full()
        yield from batches.rest()

    def _questions(self, unit: Unit, batches: Batches) -> Iterator[Question]:
        modules = modules_of(unit.name)
        for module in sorted(modules, key=mixed):
            with unless_python(module, origin_of(unit.name), batches):
                for function in functions(modules[module].read_bytes()):
                    yield from _about(module, function)


def _about(module: str, function: Documented) -> Iterator[Question]:
    """What it does, and one more question."""
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
        "parameters": (f"Which parameters does {signature} take?", f"It takes {_listed(parameters)}."),
        "count": (f"How many parameters does {signature} take?", f"It takes {len(parameters)}."),
        "yes_no": (f"Does {signature} take {guess}?", "Yes." if guess in parameters else "No."),
        "module": (f"In which module is {module}.{name}?", f"It is in the module {module}."),
    }
    kind = list(asked)[number % 4]
    yield Question(module, name, kind, *asked[kind])


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "nothing"


def _number(one: Question, purpose: str) -> int:
    """A number that stands for a choice, always the same for a question."""
    return int.from_bytes(mixed(f"{purpose} {one.module}:{one.name}:{one.kind}"))


class _Others:
    """The answers to questions of each kind, by length."""

    def __init__(self, questions: list[Question]):
        answers: dict[str, set[str]] = {}
        for one in questions:
            answers.setdefault(one.kind, set()).add(one.answer)
        self._sorted = {
            kind: sorted(found, key=lambda text: (len(text), text)) for kind, found in answers.items()
        }
        self._places = {
            kind: {text: i for i, text in enumerate(found)} for kind, found in self._sorted.items()
        }

    def near(self, one: Question) -> str | None:
        """Another answer of about its length; None if there is none."""
        found, place = self._sorted[one.kind], self._places[one.kind][one.answer]
        first = max(0, min(place - NEAREST // 2, len(found) - NEAREST - 1))
        near = [text for text in found[first : first + NEAREST + 1] if text != one.answer]
        return near[_number(one, "other") % len(near)] if near else None
