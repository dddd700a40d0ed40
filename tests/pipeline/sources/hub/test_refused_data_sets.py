"""What cannot be read from the hub is told in one sentence."""

from pathlib import Path
from typing import Any

from tests.pipeline.sources.hub.test_hub import texts
from tests.pipeline.sources.hub_server import CARD, Hub


def test_what_does_not_exist_on_the_hub_is_named_with_what_does(read: Any) -> None:
    for config, says in (
        ({"name": "org/none"}, "'org/none' cannot be found: it does not exist or is private: check its name"),
        ({"revision": "v9"}, "'org/set' at revision 'v9' cannot be found: it has no such revision"),
        ({"config": "fancy"}, "'fancy' not found. Available: ['plain']"),
        ({"split": "dev"}, "has no split 'dev'; choose from train, test"),
        (
            {"text_column": "body"},
            "no column 'body': name the one of the text in `text_column`; there are 'id', 'text', 'score'",
        ),
        ({"text_column": "score"}, "column 'score' is of type double"),
    ):
        assert says in read(config=config)["error"]


def test_a_hub_that_cannot_be_reached_is_one_clear_error(read: Any) -> None:
    assert "the hub at http://127.0.0.1:9 does not answer" in read(HF_ENDPOINT="http://127.0.0.1:9")["error"]


def test_a_gated_data_set_opens_with_the_token_of_the_environment_and_with_no_other(
    read: Any, hub: Hub, tmp_path: Path
) -> None:
    hub.token, home = "secret", str(tmp_path)
    (tmp_path / "token").write_text("secret")  # where a login would have saved it
    refused = read(config={"split": "test"}, HF_HOME=home)["error"]
    assert "it is gated: accept its terms on its page, and set HF_TOKEN" in refused
    assert texts(read(config={"split": "test"}, HF_HOME=home, HF_TOKEN="secret")) == ["held out"]


def test_a_gated_data_set_whose_description_is_public_is_told_as_gated(read: Any, hub: Hub) -> None:
    hub.token, hub.gated_files_only = "secret", True
    assert "it is gated: accept its terms on its page, and set HF_TOKEN" in read()["error"]
    assert texts(read(config={"split": "test"}, HF_TOKEN=" secret\n")) == ["held out"]  # as `cat` of a file


def test_a_token_that_the_hub_does_not_take_is_told_and_never_shown(read: Any, hub: Hub) -> None:
    hub.token = "secret"
    for token, told in (
        ("wrong", "cannot be found: it refuses HF_TOKEN: copy the token again, or unset it"),
        ("two\nlines", "HF_TOKEN holds characters that no token has: copy the token again"),
        ("né", "HF_TOKEN holds characters that no token has: copy the token again"),
    ):
        found = read(HF_TOKEN=token)["error"]
        assert told in found and token not in found and repr(token)[1:-1] not in found


def test_a_data_set_with_several_configurations_is_told_with_their_names(read: Any, hub: Hub) -> None:
    second = CARD.replace(b"---\nconfigs:\n", b"").replace(b"plain", b"other")
    hub.files[hub.commits[0]]["README.md"] = CARD.removesuffix(b"---\n") + second
    told = "Config name is missing. Please pick one among the available configs: ['plain', 'other']"
    assert read()["error"].endswith(told)
    assert texts(read(config={"config": "other", "split": "test"})) == ["held out"]
