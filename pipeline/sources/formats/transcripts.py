"""Conversations written as one text, with the marks by which models are prompted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.sources.source import Reason, RefusedError


@dataclass(frozen=True)
class Markup:
    """`speaker` begins a message, and its group is the role, or a key of `roles`. `end` ends a message; None
    if only the next speaker does. `before`: what else a text may begin with. With `words`, which any text
    may have, two speakers show that it is a conversation, and white space around messages is no content.
    `inner`: a mark within a message, which parts its paragraphs. With `names`, which a dialogue within an
    answer may have, only a whole column is one, of somebody who asks and somebody who answers.
    """

    name: str
    speaker: re.Pattern[str]
    end: re.Pattern[str] | None = None
    before: re.Pattern[str] = re.compile("")
    roles: Mapping[str, str] = field(default_factory=dict)
    words: bool = False
    inner: re.Pattern[str] = re.compile("(?!)")
    names: bool = False

    def begins(self, text: str) -> bool:
        start = text[len(text) - len(text.lstrip()) :]
        before = self.before.match(start)
        return self.speaker.match(start[before.end() if before else 0 :]) is not None

    def is_conversation(self, text: str) -> bool:
        """Whether it is surely one. Only a prompt of one message has an empty line before it."""
        if not self.begins(text):  # which is known before a long text is searched
            return False
        alone = text.startswith("\n\n") and not self.names
        speakers = {self.roles.get(name, name) for name in self.speaker.findall(text)}
        if self.names:
            return not speakers.isdisjoint(ASKING) and bool(speakers - {*ASKING, *_BESIDE})
        return not self.words or alone or len(speakers) > 1

    def messages(self, column: str, text: str) -> list[dict[str, str]]:
        """Raises RefusedError where text is in no message."""
        before, *pieces = self.speaker.split(text)
        said, outside = [], [self.before.sub("", before.strip(), count=1)]
        for speaker, content in zip(pieces[::2], pieces[1::2], strict=True):
            if self.end is not None:
                content, *after = self.end.split(content)
                outside += after
            content = self.inner.sub("\n\n", content)
            said.append(
                {
                    "role": self.roles.get(speaker, speaker),
                    "content": content.strip() if self.words else content,
                }
            )
        if any(map(str.strip, outside)):
            why = f"column {column!r} is {self.name} with text that is in no message: take that out"
            raise RefusedError(Reason.CONTENT_NOT_TEXT, why)
        return said


ASKING, _BESIDE = ("USER", "User", "user", "Human"), ("SYSTEM", "System")
_NAMES = "USER|ASSISTANT|SYSTEM|User|Assistant|System|Human|You|AI|Bot|Chatbot|ChatGPT|Claude|Gemini|Copilot"
_ROLES = {"You": "user", "Prompt": "user"}
_ROLES |= dict.fromkeys(("Claude", "Gemini", "Copilot", "Response"), "assistant")
# A heading or a line in bold, perhaps with a picture before the name.
_HEADING = rf"(?:#{{1,6}} +(?:\*\*)?|\*\*)(?:[^\w\s*#]+ )?({_NAMES}|Prompt|Response)(?: said)?"
_HEADING += r"(?:(?::\*\*|\*\*:|\*\*|:)(?=\s)|(?=[ \t]*\n))"
MARKUPS = (
    Markup("ChatML", re.compile(r"<\|im_start\|>([^\n]*)(?:\n|\Z)"), re.compile(r"<\|im_end\|>")),
    Markup(
        "Llama 3's markup",
        re.compile(r"<\|start_header_id\|>(.*?)<\|end_header_id\|>\n{0,2}"),
        re.compile(r"<\|(?:eot_id|eom_id|end_of_text)\|>"),
        before=re.compile(r"<\|begin_of_text\|>\s*"),
    ),
    Markup(
        "Gemma's markup",
        re.compile(r"<start_of_turn>([^\n]*)(?:\n|\Z)"),
        re.compile("<end_of_turn>"),
        before=re.compile(r"<bos>\s*"),
    ),
    Markup(
        "the markup of Phi-3 and Zephyr",
        re.compile(r"<\|(system|user|assistant)\|>\n?"),
        re.compile(r"<\|end\|>|<\|endoftext\|>|</s>"),
    ),
    Markup(
        "Llama 2's markup",
        re.compile(r"(?:<s>\s*)?(?:\[INST\]\s*(?=<<SYS>>))?(\[INST\]|\[/INST\]|<<SYS>>|<</SYS>>)"),
        re.compile("</s>"),
        roles={"[INST]": "user", "[/INST]": "assistant", "<<SYS>>": "system", "<</SYS>>": "user"},
        words=True,
    ),
    # As in Guanaco's data, where the next speaker may follow in the same line.
    Markup("a transcript", re.compile("### (Human|Assistant|System): ?"), words=True),
    # As in hh-rlhf: each speaker stands at the beginning or behind an empty line.
    Markup("a transcript", re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):"), words=True),
    Markup(
        "Alpaca's markup",
        re.compile(r"(?:\A\s*|\n\s*)### (Instruction|Response):"),
        before=re.compile("Below is an instruction[^#]*"),
        roles={"Instruction": "user", "Response": "assistant"},
        words=True,
        inner=re.compile(r"\s*\n### Input:\s*"),
    ),
    # A speaker in each line, or as in Vicuna's data, where an answer follows in the same line.
    Markup(
        "a transcript",
        re.compile(
            r"(?:\A\s*|\n\s*|</s>\s*|(?<=\.) (?=USER:)|\s+(?=ASSISTANT:))"
            rf"({_NAMES})(?: said)?:"
        ),
        re.compile("</s>"),
        before=re.compile(r"A chat between (?s:.*?)(?=\s*USER:|\Z)"),
        roles=_ROLES,
        words=True,
        names=True,
    ),
    # As pages and extensions write chats in Markdown, perhaps below a title.
    Markup(
        "a transcript in Markdown",
        re.compile(rf"(?:\A\s*|\n\s*){_HEADING}"),
        before=re.compile(rf"(?!{_HEADING})#+ [^\n]*(?:\n\s*|\Z)"),
        roles=_ROLES,
        words=True,
        names=True,
    ),
)
ANSWERING = ("assistant", "model")
# What ends an answer whose prompt is marked up in another column.
END_OF_ANSWER = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<\|end\|>|<end_of_turn>)\s*\Z")


def is_transcript(text: str) -> bool:
    """Whether a text is a conversation."""
    return any(markup.is_conversation(text) for markup in MARKUPS)


def begins_transcript(text: str) -> bool:
    """Whether a text begins as a conversation does, however it goes on."""
    return any(markup.begins(text) for markup in MARKUPS if not markup.names)


def messages_of(column: str, text: str, role: str | None) -> list[dict[str, str]] | None:
    """The messages of a conversation, or of what one `role` may have said of it; None for another text. The
    beginning of an answer that a user's text ends with is left out. Raises RefusedError.
    """
    markups = (one for one in MARKUPS if role is None or not one.names)
    markup = next((one for one in markups if one.is_conversation(text)), None)
    if markup is None:
        return None
    *said, last = markup.messages(column, text)
    is_open = last["role"].lower() in ANSWERING and not last["content"]
    return said if is_open and role == "user" else [*said, last]


def without_end(text: str) -> str:
    """An answer without the mark that ends it, unless the text is about such marks."""
    answer = END_OF_ANSWER.sub("", text)
    ending = (markup for markup in MARKUPS if markup.end and not markup.names)
    return text if any(markup.speaker.search(answer) for markup in ending) else answer
