"""A model is taught to answer and to prefer, by `sft` and `align`, with the pretraining's guarantees."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.steps.lineage.checkpoints import Checkpoint
from pipeline.steps.model import evaluate
from pipeline.steps.training import plan
from pipeline.store import keys
from tests.browser import chromium
from tests.integration.project import Project, conversations, make_chat_project
from tests.llama_cpp import LlamaCpp
from tests.rows import jsonl
from trainer.run.evaluation.conversation import ChatFormat

SECTIONS = ("sft", "dpo")


def content(project: Project, section: str) -> dict[str, str]:
    """The weights of a section's export, and the data version of each of its stages."""
    of_section = project.variant_store(section)
    (part,) = of_section.current(keys.EXPORTED_MODEL).parts[:1]
    versions = {
        key: of_section.current(key).data_version
        for key in (keys.DEDUP, keys.token_shards(f"{section}_words"))
    }
    return versions | {"weights": part.files["model.safetensors"].sha256}


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = make_chat_project(tmp_path_factory.mktemp("aligned"))
    for job in ("pretrain", "align"):
        project.make(job=job)
    return project


def last_checkpoint(project: Project, section: str) -> Checkpoint:
    return plan.last_checkpoint(project.variant_store(section))


@pytest.mark.slow
def test_the_lineage_names_the_base_and_every_data_set(aligned: Project) -> None:
    lineage = last_checkpoint(aligned, "dpo").lineage
    sft = lineage["pretrained"]["lineage"]
    assert [one["name"] for one in lineage["recipe"]["corpora"]] == ["dpo_words"]
    assert [one["name"] for one in sft["recipe"]["corpora"]] == ["sft_words"]
    assert [one["name"] for one in sft["pretrained"]["lineage"]["recipe"]["corpora"]] == ["topics", "stdlib"]
    shown = aligned.command("lineage", last_checkpoint(aligned, "dpo").name)
    assert all(name in shown for name in ("dpo_words", "sft_words", "topics"))


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_the_lineage_and_the_card_say_how_long_a_section_was_trained(aligned: Project, section: str) -> None:
    checkpoint = last_checkpoint(aligned, section)
    training = checkpoint.lineage["recipe"]["training"]
    assert training["max_tokens"] == checkpoint.tokens > training["global_batch_tokens"]
    assert training["schedule"]["warmup_tokens"] == round(checkpoint.tokens / 10)  # of a short run
    steps = checkpoint.tokens // training["global_batch_tokens"]
    card = (aligned.variant_store(section).current(keys.EXPORTED_MODEL).path / "README.md").read_text(
        encoding="utf-8"
    )
    assert re.search(rf"\| steps \| {steps:,}\b", card)
    assert f"{checkpoint.tokens:,}" in aligned.command("lineage", checkpoint.name)


@pytest.mark.slow
def test_a_batch_names_its_documents_those_of_the_rehearsal_too(aligned: Project) -> None:
    checkpoint, found = last_checkpoint(aligned, "sft"), set()
    for step in (1, 2, 3):
        shown = aligned.command("lineage", checkpoint.name, f"--step={step}")
        found |= {line.split()[-1] for line in shown.splitlines() if line.startswith("row ")}
    assert {"sft_words", "rehearsal_topics"} <= found


@pytest.mark.slow
def test_what_is_up_to_date_is_not_made_again(aligned: Project) -> None:
    before = {path: path.stat().st_mtime_ns for path in (aligned.home / "store").rglob("manifest.json")}
    aligned.make(job="align")
    assert before == {
        path: path.stat().st_mtime_ns for path in (aligned.home / "store").rglob("manifest.json")
    }


@pytest.mark.slow
def test_tuning_is_measured_beside_what_was_there_before(aligned: Project) -> None:
    for section in SECTIONS:
        evaluation = evaluate.read(aligned.variant_store(section).current(keys.EVALUATION))
        losses = evaluation["tuning"]["losses"]
        assert losses["before"].keys() == losses["after"].keys() == {"answers", "text"}
        assert evaluation["tuning"]["kinds"][-1]["asked"] > 0
    assert losses["after"]["answers"]["accuracy"] > 0.5
    sft = evaluate.read(aligned.variant_store("sft").current(keys.EVALUATION))["tuning"]
    assert sft["losses"]["after"]["answers"]["loss"] < sft["losses"]["before"]["answers"]["loss"] / 2


@pytest.mark.slow
def test_the_store_keeps_what_the_sections_use(aligned: Project) -> None:
    before = content(aligned, "sft") | content(aligned, "dpo")
    aligned.command("gc", "--delete")
    assert content(aligned, "sft") | content(aligned, "dpo") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "corpora/sft_words/*/.*.partial",
        "token_shards/sft_words/*/manifest.json",
        "runs/*/checkpoints/step-*/hf/generation_config.json",
        "evaluation/.*.partial",
        "corpora/dpo_words/raw/*/manifest.json",
    ],
)
def test_killed_anywhere_it_ends_in_the_same_bytes(aligned: Project, tmp_path: Path, place: str) -> None:
    project = make_chat_project(tmp_path / "killed")
    project.make()
    root = project.home / "store"
    there = set(root.glob(place))
    project.run_until(lambda: bool(set(root.glob(place)) - there), job="align")
    project.make(job="align")
    assert [content(project, section) for section in SECTIONS] == [
        content(aligned, section) for section in SECTIONS
    ]


@pytest.mark.slow
def test_other_programs_ask_alike_and_answer_alike(aligned: Project, tmp_path: Path) -> None:
    """transformers, llama.cpp and `trainer answer` on 50 questions: the same prompt with one [BOT], the same
    text of the likeliest tokens, and [END] ends it.
    """
    transformers = pytest.importorskip("transformers")
    exported = aligned.variant_store("sft").current(keys.EXPORTED_MODEL).directory()
    form, questions = ChatFormat.of(exported), [one["messages"][:1] for one in conversations()[:50]]
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    model = transformers.AutoModelForCausalLM.from_pretrained(exported)
    assert model.generation_config.eos_token_id == [form.ids.end, tokenizer.convert_tokens_to_ids("[EOT]")]
    assert tokenizer.eos_token_id == model.config.eos_token_id == form.ids.end

    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"messages": one}) + "\n" for one in questions))
    said = aligned.python("trainer", "answer", f"--model={exported}", "--max-new-tokens=30", str(file))
    ours = [json.loads(line) for line in said.splitlines()]
    prompts = []
    for question, answer in zip(questions, ours, strict=True):
        ids = [form.begin, *form.message("user", question[0]["content"]), form.ids.assistant]
        asked = tokenizer.apply_chat_template(
            question, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        assert asked["input_ids"][0].tolist() == ids
        written = model.generate(**asked, max_new_tokens=30, do_sample=False)[0, len(ids) :].tolist()
        assert tokenizer.decode(written, skip_special_tokens=True) == answer["text"]
        assert (written[-1] == form.ids.end) == answer["stops"]
        prompts.append(ids)
    assert sum(answer["stops"] for answer in ours) >= 48

    pytest.importorskip("gguf")
    aligned.command("export", "--format=gguf", "--variant=sft", f"-o={tmp_path / 'gguf'}")
    theirs = LlamaCpp(tmp_path / "gguf" / "tiny.gguf")
    for question, prompt, answer in zip(questions, prompts, ours, strict=True):
        found = theirs.answer(question, 30)
        assert found["usage"]["prompt_tokens"] == len(prompt)
        assert found["choices"][0]["message"]["content"] == answer["text"]
        assert (found["choices"][0]["finish_reason"] == "stop") == answer["stops"]
    modelfile = (tmp_path / "gguf" / "Modelfile").read_text()
    assert modelfile.startswith("FROM ./tiny.gguf\n")
    assert "PARAMETER stop [END]" in modelfile


@pytest.mark.slow
def test_the_page_shows_in_a_browser_what_answer_prints(aligned: Project, tmp_path: Path) -> None:
    exported = str(aligned.variant_store("sft").current(keys.EXPORTED_MODEL).directory())
    questions = [one["messages"][:1] for one in conversations()[:2]]
    file = jsonl(tmp_path / "questions.jsonl", *({"messages": one} for one in questions))
    said = aligned.python("trainer", "answer", f"--model={exported}", str(file))
    answers = [json.loads(line)["text"] for line in said.splitlines()]

    chat = [sys.executable, "-m", "trainer", "chat", exported, "--page", "--port=0", "--temperature=0"]
    with (
        chromium() as browser,
        subprocess.Popen(chat, cwd=aligned.directory, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            page = browser.new_page()
            page.goto(server.stdout.readline().split()[0])
            form, said = page.locator("form"), page.locator("#said")

            def answer(text: str) -> str:
                page.locator("textarea").fill(text)
                page.keyboard.press("Enter")
                page.get_by_role("button", name="Send").wait_for()
                return said.locator(".model").last.inner_text()

            asked = [one[0]["content"] for one in questions]
            assert answer(asked[0]) == answers[0]
            page.locator("#reset").click()
            page.wait_for_function("() => !document.querySelector('#said').children.length")
            assert answer(asked[1]) == answers[1]
            # What is on the page is what the model has read, also after the page is loaded again.
            page.reload()
            assert said.locator("div").count() == 0 and answer(asked[0]) == answers[0]
            # Ctrl-C in the terminal: the page says so, and can be written in again.
            server.terminate()
            server.wait()
            assert "[no answer came" in answer(asked[1]) and form.evaluate("form => !form.inert")
        finally:
            server.kill()
