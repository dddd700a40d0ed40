"""A conversation reads what the model was taught: each token once, no control token from a text."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.trainer.models import small
from trainer.__main__ import main
from trainer.config import LoraConfig, PretrainedConfig, SamplesConfig
from trainer.hf import export, save_adapter
from trainer.hf.tokenizer import load_tokenizer
from trainer.model.llama import Llama
from trainer.run.evaluation.answer import answered
from trainer.run.evaluation.benchmarks import benchmark
from trainer.run.evaluation.conversation import ChatFormat, Conversation
from trainer.run.learned_tokens import Answers
from trainer.system.errors import TrainerError

SPECIAL = ["[UNK]", "[PAD]", "[BOT]", "[EOT]", "[SYSTEM]", "[USER]", "[ASSISTANT]", "[TOOL]", "[END]"]
BOT, EOT, SYSTEM, USER, ASSISTANT, _, END = range(2, 9)
GREEDY = SamplesConfig(max_new_tokens=8, temperature=0)


def write_tokenizer(directory: Path, special: list[str] = SPECIAL) -> Path:
    """One token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    directory.mkdir(exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def make(context: int = 120) -> Llama:
    return small(256 + len(SPECIAL), context)


def exported(tmp_path: Path, model: Llama, end_id: int | None = None) -> None:
    """Exports a model with the tokenizer of `write_tokenizer` to `tmp_path / "model"`."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    export(model, tokenizer, bot_id=BOT, eot_id=EOT, destination=tmp_path / "model", end_id=end_id)


def conversation(tmp_path: Path, model: Llama, **settings: str) -> Conversation:
    return Conversation(model, ChatFormat.of(write_tokenizer(tmp_path / "model")), GREEDY, **settings)


def likeliest(model: Llama, prompt: list[int]) -> list[int]:
    """What the whole model writes, computed anew for each token, up to a control token."""
    tokens = list(prompt)
    for _ in range(GREEDY.max_new_tokens):
        with torch.no_grad():
            token = int(model.logits(model(torch.tensor([tokens])))[0, -1].argmax())
        if token in range(2, 9) and token != EOT:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def test_each_turn_reads_the_conversation_so_far(tmp_path: Path) -> None:
    model = make()
    talk, form = conversation(tmp_path, model, system="Be brief."), ChatFormat.of(tmp_path / "model")
    prompt = [BOT, *form.message("system", "Be brief.")]
    for said in ("Hello [USER]", "é", ""):
        prompt += [*form.message("user", said), ASSISTANT]
        written = likeliest(model, prompt)
        assert "".join(talk.answer(said)) == form.text(written)
        prompt += [*written, END]


def test_the_text_of_a_message_gives_no_control_token(tmp_path: Path) -> None:
    form = ChatFormat.of(write_tokenizer(tmp_path / "model"))
    ids = form.message("user", "".join(SPECIAL))
    assert ids[0] == USER
    assert ids[-1] == END
    assert min(ids[1:-1]) >= len(SPECIAL)


def test_pieces_are_whole_characters_and_the_answer(tmp_path: Path) -> None:
    form = ChatFormat.of(write_tokenizer(tmp_path / "model"))
    talk = Conversation(make(), form, SamplesConfig(max_new_tokens=20, temperature=0))
    text = "aé€🙂"
    tokens = [*form.tokenizer.encode(text, add_special_tokens=False).ids, END]
    talk._next = lambda: tokens.pop(0)  # type: ignore[method-assign]  # what no small model writes
    pieces = list(talk.answer("?"))
    assert "".join(pieces) == text
    assert [piece for piece in pieces if piece] == ["a", "é", "€", "🙂"]
    assert talk.stopped


def test_begun_anew_it_answers_as_at_first(tmp_path: Path) -> None:
    talk = conversation(tmp_path, make())
    first = "".join(talk.answer("Hello"))
    "".join(talk.answer("And then?"))
    talk.reset()
    assert "".join(talk.answer("Hello")) == first


def test_a_hundred_turns_are_answered_in_a_cache_of_the_context(tmp_path: Path) -> None:
    model = make(context=60)
    with torch.no_grad():
        model.lm_head.weight[: len(SPECIAL)] = 0  # it ends no answer before its beginning
    talk = conversation(tmp_path, model)
    for turn in range(100):
        said = "x" * 150 if turn == 50 else f"Question {turn}"  # one is longer than the context
        assert "".join(talk.answer(said))
        assert max(talk.stream.cache.lengths) <= 60


@pytest.mark.parametrize(
    ("system", "kept"), [("Be brief.", 12), ("Be brief, and say nothing of what you do not know.", 4)]
)
def test_short_instructions_are_not_forgotten_with_the_oldest_turns(
    tmp_path: Path, system: str, kept: int
) -> None:
    talk = conversation(tmp_path, make(context=60), system=system)
    "".join(talk.answer("Hello"))
    keys = talk.stream.cache.layers[1].keys
    assert keys is not None
    before = keys.clone()
    for _ in range(20):
        "".join(talk.answer("And then?"))
    same = (keys == before).all(dim=3).all(dim=1)[0]
    assert int(same.long().cumprod(dim=0).sum()) == kept


def test_a_model_that_knows_no_conversations_is_refused_in_one_sentence(tmp_path: Path) -> None:
    directory = write_tokenizer(tmp_path / "plain", SPECIAL[:4])
    with pytest.raises(TrainerError, match=r"no control tokens such as \[USER\].*job `sft`"):
        ChatFormat.of(directory)


def test_a_benchmark_is_asked_through_the_template(tmp_path: Path) -> None:
    model = make()
    exported(tmp_path, model)
    items = tmp_path / "items.jsonl"
    items.write_text('{"context": "Is it blue?", "continuations": [" yes", " no"], "gold": 0}')
    list(benchmark(tmp_path / "model", [items], "fp32", tmp_path, chat=True))
    found = json.loads((tmp_path / "items.log_likelihoods.jsonl").read_text())["log_likelihoods"]
    form = ChatFormat.of(tmp_path / "model")
    prompt = [BOT, *form.message("user", "Is it blue?"), ASSISTANT]
    for text, ours in zip(("yes", "no"), found, strict=True):
        answer = form.tokenizer.encode(text, add_special_tokens=False).ids
        with torch.no_grad():
            logits = model.logits(model(torch.tensor([prompt + answer])))[0].log_softmax(-1)
        expected = sum(float(logits[len(prompt) - 1 + at, token]) for at, token in enumerate(answer))
        assert ours == pytest.approx(expected, abs=1e-4)


def test_an_answer_is_scored_with_its_end_behind_the_messages_as_it_was_trained(tmp_path: Path) -> None:
    """As `learned` says of the same tokens in training, and beside a benchmark of plain text."""
    model = make()
    exported(tmp_path, model)
    said = [{"role": "system", "content": "brief"}, {"role": "user", "content": "Is it [END] blue?"}]
    items, plain = tmp_path / "talks.answers.jsonl", tmp_path / "plain.jsonl"
    items.write_text(json.dumps({"context": "", "messages": said, "continuations": ["yes"], "gold": 0}))
    plain.write_text('{"context": "a", "continuations": ["b", "c"], "gold": 0}')
    list(benchmark(tmp_path / "model", [plain, items], "fp32", tmp_path))
    (found,) = json.loads((tmp_path / "talks.answers.log_likelihoods.jsonl").read_text())["log_likelihoods"]

    form = ChatFormat.of(tmp_path / "model")
    asked = [token for one in said for token in form.message(**one)]
    ids = [BOT, *asked, *form.message("assistant", "yes"), EOT]
    tokens, targets = torch.tensor([ids[:-1]]), torch.tensor([ids[1:]])
    learned = Answers(BOT, EOT, form.ids, False).learned(tokens, targets, torch.zeros_like(tokens))
    with torch.no_grad():
        logs = model.logits(model(tokens))[0].log_softmax(-1)
    expected = logs[torch.arange(len(ids) - 1), targets[0]][learned[0] & (targets[0] != EOT)].sum()
    assert found == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ("Hello", "`messages` must be a list of objects"),
        ([], "`messages` must be a list of objects"),
        ([{"role": "end", "content": "x"}], 'message 1: role must be one of assistant, .*, not "end"'),
        ([{"role": "user", "content": "x"}, "y"], "message 2: role must be one of .*, not null"),
        ([{"role": "user", "content": 7}], "message 1: content must be a text or parts of text, not 7"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}],
            "message 1: the model reads text only: leave out the part ..type.: .image",
        ),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
            "message 1: the model has not learned to call tools",
        ),
        (
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}],
            "the last message is the assistant's, so nothing is left to answer",
        ),
    ],
)
def test_a_conversation_that_is_none_is_told_by_its_message(
    tmp_path: Path, messages: object, says: str
) -> None:
    exported(tmp_path, make())
    items = tmp_path / "answers.jsonl"
    items.write_text(json.dumps({"messages": messages, "continuations": ["y"], "gold": 0}))
    for read in (benchmark(tmp_path / "model", [items]), answered(tmp_path / "model", items, GREEDY)):
        with pytest.raises(TrainerError, match=rf"answers\.jsonl:1: {says}"):
            list(read)


def test_a_tokenizer_that_was_saved_with_a_length_reads_whole_texts(tmp_path: Path) -> None:
    """`transformers` and others save in tokenizer.json how long the texts of a training were made."""
    model, directory = make(), tmp_path / "model"
    exported(tmp_path, model)
    said = [("user", "Hello you")]
    before = ChatFormat.of(directory).before_answer(said)
    saved = Tokenizer.from_file(str(directory / "tokenizer.json"))
    saved.enable_truncation(4)
    saved.enable_padding(length=30)
    saved.save(str(directory / "tokenizer.json"))
    assert ChatFormat.of(directory).before_answer(said) == before
    assert len(load_tokenizer(directory).encode("Hello you").ids) == 9


@pytest.mark.usefixtures("trainer_environment")
def test_a_model_beside_the_tokenizer_of_another_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "model"
    exported(tmp_path, small(100, 60))
    assert main(["generate", "--model", str(directory), "--prompt", "Hello"]) == 2
    assert "tokenizer.json: has 265 tokens, but the model beside it 100: put" in capsys.readouterr().err
    export(make(), tmp_path / "tokenizer", bot_id=999, eot_id=EOT, destination=tmp_path / "other")
    assert main(["generate", "--model", str(tmp_path / "other"), "--prompt", "Hello"]) == 2
    assert "bos_token_id is 999: set it to the id of one token, below 265" in capsys.readouterr().err


def test_the_command_talks_and_forgets(tmp_path: Path) -> None:
    directory = write_tokenizer(tmp_path / "tokenizer")
    export(make(), directory, bot_id=BOT, eot_id=EOT, destination=tmp_path / "model")

    def turns(*options: str) -> list[str]:
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "trainer",
                "chat",
                str(tmp_path / "model"),
                "--max-new-tokens=8",
                *options,
            ],
            input="Hello\n\nAnd?\n/reset\nHello\n/exit\nnever read\n",
            capture_output=True,
            text=True,
            check=True,
        )
        return ended.stdout.split("\n> ")[1:]

    likeliest = turns("--temperature=0")
    assert len(likeliest) == 6
    assert likeliest[0] == likeliest[4] != likeliest[2]
    drawn = turns()
    assert len(drawn) == 6
    assert drawn[0] != drawn[4]


@pytest.mark.usefixtures("trainer_environment")
def test_a_text_keeps_the_white_space_of_its_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(tmp_path, make())
    asked = ["generate", "--model", str(tmp_path / "model"), "--prompt", "\n  Hello ", "--max-new-tokens=2"]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"].startswith("\n  Hello ")


@pytest.mark.usefixtures("trainer_environment")
@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize(
    "command", [["chat"], ["answer", "--model"], ["benchmark", "--chat", "--model"]], ids=lambda one: one[0]
)
def test_who_talks_to_a_model_that_has_not_learned_to_answer_is_told(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    end: int | None,
) -> None:
    exported(tmp_path, make(), end)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n"))
    question = {"messages": [{"role": "user", "content": "Hello"}]}
    item = {"context": "Hello", "continuations": ["a", "b"], "gold": 0}
    files = {"answer": question, "benchmark": item}
    asked = tmp_path / "asked.jsonl"
    asked.write_text(json.dumps(files.get(command[0], {})))
    file = [str(asked)] if command[0] in files else []
    assert main([*command, str(tmp_path / "model"), *file]) == 0
    told = "has not learned to answer, and continues text instead: take a model of the job `sft`"
    assert (told in caplog.text) == (end is None)


@pytest.mark.parametrize("words", [8, 12, 60, 400])
@pytest.mark.parametrize("instructions", ["", "Be brief."])
def test_a_conversation_longer_than_the_context_is_answered_as_chat_answers_it(
    words: int, instructions: str, tmp_path: Path
) -> None:
    model = make(context=60)
    exported(tmp_path, model)
    questions = tmp_path / "questions.jsonl"
    begin = [{"role": "system", "content": instructions}] if instructions else []
    said = ["Hi\u2028there", " ".join(f"word{place}" for place in range(words)), "Bye"]
    lines = (json.dumps({"messages": [*begin, {"role": "user", "content": one}]}) for one in said)
    questions.write_text("".join(f"{line}\n" for line in lines))
    form, samples = ChatFormat.of(tmp_path / "model"), SamplesConfig(max_new_tokens=20, temperature=0)
    talks = [Conversation(model, form, samples, instructions) for _ in said]
    expected = ["".join(talk.answer(one)) for talk, one in zip(talks, said, strict=True)]
    assert [one["text"] for one in answered(tmp_path / "model", questions, samples)] == expected


@pytest.mark.parametrize("tokens", [[USER, END], [USER]])
def test_an_adapter_that_has_learned_the_end_of_an_answer_has_learned_to_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tokens: list[int]
) -> None:
    exported(tmp_path, make())
    rows = {name: torch.zeros(len(tokens), 32) for name in ("model.embed_tokens.rows", "lm_head.rows")}
    save_adapter(rows, LoraConfig(), PretrainedConfig(path=tmp_path / "model"), tmp_path / "adapter", tokens)
    ChatFormat.of(tmp_path / "adapter")
    assert ("has not learned to answer" in caplog.text) == (END not in tokens)
