"""Each corpus makes its share of the training, and text is not repeated more often than allowed."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli import main
from pipeline.recipe.sections import MixtureParams
from pipeline.steps.training.mixture import rounded, shares
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.store import Store
from tests.pipeline.steps.training.test_plan import recipe

NONE: dict[str, float | None] = {}


def test_without_weights_every_token_is_seen_equally_often() -> None:
    assert shares({"a": 300, "b": 100}, NONE, MixtureParams(), 1000) == pytest.approx({"a": 0.75, "b": 0.25})


def test_a_steady_mixture_is_near_the_sizes_and_seldom_changes_with_them() -> None:
    sizes = [{"a": size, "b": 2**20} for size in range(10**5, 2 * 10**5, 100)]
    found = [shares(size, NONE, MixtureParams(), 1000, steady=True) for size in sizes]
    for size, share in zip(sizes, found, strict=True):
        assert share["a"] / share["b"] == pytest.approx(size["a"] / size["b"], rel=0.045)
    assert len({tuple(share.values()) for share in found}) == 9  # a doubling, begun in the middle of a step
    weights: dict[str, float | None] = {"a": 3, "b": 7}
    assert shares(sizes[0], weights, MixtureParams(), 1000, True) == pytest.approx({"a": 0.3, "b": 0.7})


def test_a_higher_temperature_raises_the_small_corpus() -> None:
    found = shares({"a": 900, "b": 100}, NONE, MixtureParams(temperature=2), 1000)
    assert found == pytest.approx({"a": 0.75, "b": 0.25})  # 30 : 10, the square roots


def test_weights_in_the_recipe_are_the_shares() -> None:
    assert shares({"a": 900, "b": 100}, {"a": 1, "b": 3}, MixtureParams(), 1000) == pytest.approx(
        {"a": 0.25, "b": 0.75}
    )


def test_what_a_corpus_may_not_repeat_goes_to_the_others_by_their_weights() -> None:
    found = shares(
        {"a": 100, "b": 1000, "c": 1000}, {"a": 2, "b": 1, "c": 1}, MixtureParams(max_epochs=2), 1000
    )
    assert found == pytest.approx({"a": 0.2, "b": 0.4, "c": 0.4})


def test_more_tokens_than_the_cap_allows_are_refused_with_the_numbers() -> None:
    with pytest.raises(
        PipelineError, match=r"max_epochs is 2, which allows 200 tokens of the 100 .*max_tokens is 1,000"
    ):
        shares({"a": 100}, NONE, MixtureParams(max_epochs=2), 1000)


def test_a_budget_of_exactly_what_the_cap_allows_is_taken() -> None:
    # whose shares of 84 add up to less than 1 in floating point
    sizes = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 77, "f": 3}
    assert sum(shares(sizes, NONE, MixtureParams(max_epochs=1), 84).values()) == pytest.approx(1)


sizes = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10**9), min_size=1)


@given(sizes, st.floats(1, 10), st.floats(0.1, 20), st.floats(0.01, 1))
def test_shares_add_up_and_no_corpus_is_repeated_beyond_the_cap(
    tokens: dict[str, int], temperature: float, epochs: float, used: float
) -> None:
    budget = max(1, int(sum(tokens.values()) * epochs * used))
    if budget > int(sum(tokens.values()) * epochs):
        return
    found = shares(tokens, NONE, MixtureParams(temperature=temperature, max_epochs=epochs), budget)
    assert sum(found.values()) == pytest.approx(1)
    assert all(share * budget <= tokens[name] * epochs * (1 + 1e-9) for name, share in found.items())


def test_the_command_shows_what_each_corpus_of_a_recipe_contributes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = recipe()
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(made.model_dump(mode="json") | {"mixture": {"temperature": 1000}}))
    monkeypatch.setenv("GROUNDWORK_STORE", str(store.root))
    assert main(["corpora", "--recipe", str(path)]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    tokens = store.current(keys.token_shards("first")).counts["train_tokens"]
    assert rows["first"][2:] == [f"{tokens:,}", "50.0%", f"{made.training.max_tokens / 2 / tokens:.2f}"]

    staged = recipe(stages=[{"name": "alone", "share": 0.5, "weights": {"first": 1}}, {"name": "both"}])
    path.write_text(yaml.safe_dump(staged.model_dump(mode="json") | {"mixture": {"temperature": 1000}}))
    assert main(["corpora", "--recipe", str(path)]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert (rows["first"][3], rows["second"][3]) == ("75.0%", "25.0%")


def test_ready_made_corpora_are_listed_with_size_and_license(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpora"]) == 0
    said = capsys.readouterr().out
    assert said.split()[:4] == ["name", "documents", "text", "license"]
    assert "tinystories" in said and "CDLA-Sharing 1.0" in said and "2,119,719" in said


def test_a_corpus_too_small_for_its_share_is_refused_before_it_is_read_too_often() -> None:
    found = shares({"large": 10**10, "tiny": 200}, NONE, MixtureParams(max_epochs=2), 10**10)
    with pytest.raises(PipelineError, match=r"'tiny' has 2e-08 of the mixture.* leave the corpus out"):
        rounded(found)
    tokens = {"large": 10**10, "small": 200_000}
    found = shares(tokens, NONE, MixtureParams(max_epochs=2), 10**10)
    assert rounded(found)["small"] == pytest.approx(200_000 / sum(tokens.values()), rel=0.05)
