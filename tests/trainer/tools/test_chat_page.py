"""The page talks to the model, and to nobody but the browser of this machine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.trainer.run.evaluation.test_conversation import BOT, EOT, make, write_tokenizer
from trainer.hf import export


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("page")
    export(make(), write_tokenizer(directory / "tokenizer"), BOT, EOT, directory / "<model>")
    command = [sys.executable, "-m", "trainer", "chat", str(directory / "<model>"), "--page", "--port=0"]
    with subprocess.Popen(
        [*command, "--max-new-tokens=8", "--temperature=0"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.kill()


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
