"""The page talks to the model, and to nobody but the browser of this machine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import torch

from tests.browser import chromium
from tests.trainer.run.evaluation.test_conversation import BOT, EOT, SPECIAL, make, write_tokenizer
from trainer.hf import export
from trainer.model.llama import Llama


def served(directory: Path, model: Llama, *options: str) -> Iterator[str]:
    export(
        model,
        write_tokenizer(directory / "tokenizer"),
        bot_id=BOT,
        eot_id=EOT,
        destination=directory / "<model>",
    )
    command = [sys.executable, "-m", "trainer", "chat", str(directory / "<model>"), "--page", "--port=0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.kill()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from served(tmp_path_factory.mktemp("page"), make(), "--max-new-tokens=8", "--temperature=0")


def post(address: str, path: str, body: str, **headers: str) -> str:
    sent = {"Content-Type": "application/json", **headers}
    with urlopen(Request(f"{address}{path}", body.encode(), sent)) as answer:
        return answer.read().decode()


def test_it_answers_and_begins_anew(address: str) -> None:
    said = json.dumps({"said": "Hello"})
    first = post(address, "/answer", said)
    assert first
    assert post(address, "/answer", said) != first
    post(address, "/reset", said)
    assert post(address, "/answer", said) == first
    assert post(address, "/answer", said) != first
    urlopen(address).close()  # an empty page: what was said is forgotten
    assert post(address, "/answer", said) == first


def test_each_tab_has_a_conversation_of_its_own(address: str) -> None:
    def said(tab: str) -> str:
        return json.dumps({"said": "Hello", "tab": tab})

    first = post(address, "/answer", said("a"))
    second = post(address, "/answer", said("a"))
    post(address, "/reset", said("a"))
    assert post(address, "/answer", said("a")) == first
    urlopen(address).close()  # another tab opens, talks and begins anew
    assert post(address, "/answer", said("b")) == first
    post(address, "/reset", said("b"))
    assert post(address, "/answer", said("a")) == second
    for number in range(40):
        post(address, "/reset", said(str(number)))
    assert post(address, "/answer", said("a")) == first  # forgotten for the sake of memory


def test_it_is_served_on_this_machine_only_and_names_the_model(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    with urlopen(address) as page:
        assert "&lt;model&gt;" in page.read().decode()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ('{"said": "Hello"}', {"Host": "evil.example"}),
        ('{"said": "Hello"}', {"Content-Type": "text/plain"}),
        ('{"said": 1}', {}),
        ('{"said": "Hello", "tab": 1}', {}),
        ("nothing", {}),
        ('{"said": "half a pair: \\ud800"}', {}),
        ("[" * 200_000, {}),
    ],
)
def test_what_another_page_could_send_is_refused(address: str, body: str, headers: dict[str, str]) -> None:
    with pytest.raises(HTTPError, match="400"):
        post(address, "/answer", body, **headers)


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Whose answers take longer than any test, since nothing that the model writes ends one."""
    model = make()
    with torch.no_grad():
        model.lm_head.weight[: len(SPECIAL)] = 0
    directory = tmp_path_factory.mktemp("talkative")
    yield from served(directory, model, "--max-new-tokens=1000000", "--temperature=0")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Of a browser profile of its own."""
    with browser.new_context(viewport={"width": 390, "height": 300}) as profile:
        yield profile.new_page()


def test_a_second_tab_opens_while_a_long_answer_is_written(talkative: str) -> None:
    said = json.dumps({"said": "Hello", "tab": "first"}).encode()
    asked = Request(f"{talkative}/answer", said, {"Content-Type": "application/json"})
    with urlopen(asked) as answer:
        assert answer.read(1)
        with urlopen(talkative, timeout=5) as page:
            assert page.status == 200


def test_a_long_answer_can_be_stopped_and_the_next_question_asked(talkative: str, page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 700})
    page.goto(talkative)
    for way in ("the button", "Escape", "a new conversation"):
        page.get_by_role("textbox").fill("Hello")
        page.keyboard.press("Enter")
        page.wait_for_function("document.querySelector('.model:last-child')?.textContent.length > 20")
        page.get_by_role("textbox").fill("written meanwhile")
        page.keyboard.press("Enter")  # does not stop the answer, and what was written stays
        assert page.get_by_role("textbox").input_value() == "written meanwhile"
        if way == "the button":
            page.get_by_role("button", name="Stop").click(timeout=5000)
        elif way == "Escape":
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name="New conversation").click()
            page.wait_for_function("!document.querySelector('#said').hasChildNodes()", timeout=5000)
        page.get_by_role("button", name="Send").wait_for(timeout=5000)
        if way != "a new conversation":
            assert page.locator(".model").last.inner_text().endswith("[stopped]")


def test_a_new_conversation_with_a_server_that_is_gone_says_so(tmp_path: Path, page: Any) -> None:
    serving = served(tmp_path, make(), "--max-new-tokens=8", "--temperature=0")
    page.goto(next(serving))
    page.get_by_role("textbox").fill("Hello")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Send").wait_for(timeout=20_000)
    next(serving, None)  # kills it
    page.get_by_role("button", name="New conversation").click()
    page.get_by_text("no answer came: look at the terminal").wait_for(timeout=5000)
    assert page.locator(".user").inner_text() == "Hello"  # what was said stays


def test_a_long_answer_is_followed_to_its_end_unless_the_person_reads_further_up(
    talkative: str, page: Any
) -> None:
    page.goto(talkative)
    page.get_by_role("textbox").fill("Hello")
    page.keyboard.press("Enter")
    page.wait_for_function("document.documentElement.scrollHeight > 900")
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY") < 100
    height = page.evaluate("scrollTo(0, 10), document.documentElement.scrollHeight")
    page.wait_for_function("before => document.documentElement.scrollHeight > before", arg=height)
    assert page.evaluate("scrollY") == 10


def test_arabic_is_written_from_the_right_and_the_choice_of_a_character_sends_nothing(
    address: str, page: Any
) -> None:
    page.goto(address)
    field = page.get_by_role("textbox")
    field.fill("\u0645\u0631\u062d\u0628\u0627")
    page.evaluate(
        "document.querySelector('textarea').dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))"
    )
    assert not page.locator(".user").count()
    assert field.evaluate("one => getComputedStyle(one).direction") == "rtl"
    page.keyboard.press("Enter")
    assert page.locator(".user").evaluate("one => getComputedStyle(one).direction") == "rtl"
