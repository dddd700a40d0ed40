"""Where the data stages leave other text than was expected, the choices are made anew."""

import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import rmtree

import pytest

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.start import jobs
from pipeline.start.choose import Wishes, choose
from pipeline.start.following import Following
from pipeline.start.horizon import Deadline, Horizon
from pipeline.start.jobs import FailedJobError, Jobs
from pipeline.start.recipe_file import write
from pipeline.start.sizes import SIZES, Learned, Size, others
from pipeline.start.stored import learned
from pipeline.steps.lineage import source_state
from pipeline.steps.recipe_versions import store_of
from pipeline.store.engines.local import LocalEngine
from tests.folders import ENGLISH
from tests.pipeline.start.test_start import fixed_speed, folder_of, judged
from tests.pipeline.steps import make


def copies(times: int) -> Callable[[Path], None]:
    """A folder in which each text stands so many times."""

    def written(folder: Path) -> None:
        rows = [json.dumps({"text": text}) for _ in range(times) for text in ENGLISH]
        (folder / "all.jsonl").write_text("\n".join(rows))

    return written


def few_texts(folder: Path) -> None:
    for number, text in enumerate(ENGLISH[:20]):
        (folder / f"{number}.txt").write_text(text)


class QuickStages(Deadline):
    """On a machine whose data stages take two seconds."""

    @property
    def spent(self) -> float:
        return 2.0


def recipes_run(
    folder: Path,
    hours: float,
    monkeypatch: pytest.MonkeyPatch,
    scores: Mapping[Size, float] = {},
    changes: int = 0,
) -> tuple[list[Recipe], Horizon]:
    """The recipes that `start` runs, one after the other, with trainings that do nothing. And how long the
    last of them may become. The folder is gone once the first has read it. The sizes with `scores` are tried
    if there is time, and NaN stands for a training that fails. The length was changed so many times before.
    """
    path, wishes, run = folder.with_name("recipe.yaml"), Wishes(3600 * hours), list[Recipe]()
    speed = fixed_speed()
    chosen = choose(judged(folder), wishes, speed)
    write(path, chosen)

    def execute(
        command: list[str], stops: Callable[[], bool], _: object, variables: Mapping[str, str]
    ) -> bool:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert not speed.look(SIZES[-1])  # the machine has other work
        run.append(recipe := load_recipe(path))
        make.data(store_of(recipe), LocalEngine(workers=1), recipe)
        for corpus in recipe.corpus_names:
            source_state.observe(store_of(recipe), recipe, corpus)
        rmtree(folder, ignore_errors=True)
        if math.isnan(score(path)):
            raise FailedJobError("no memory")
        return stops()

    def score(path: Path) -> float:
        model = load_recipe(path).training.model
        return next((bits for size, bits in scores.items() if size.model == model), 0.0)

    monkeypatch.setattr(jobs, "execute", execute)
    monkeypatch.setattr(jobs, "others", lambda first: [size for size in others(first) if size in scores])
    monkeypatch.setattr(jobs, "held_out_score", score)
    monkeypatch.setattr(Following, "look", lambda following: setattr(following, "run", object()))
    job = Jobs(path, chosen, QuickStages(wishes.seconds), folder, speed, changes)
    job.run()
    return run, job.chosen.horizon


def text_of(run: Recipe) -> Learned:
    text = learned(run, run.tokenizer.vocab_size)
    assert text
    return text


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDWORK_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))


def test_text_that_is_mostly_copies_is_not_learned_by_heart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(copies(12), tmp_path)
    (planned, run), horizon = recipes_run(folder, 1, monkeypatch)
    left = text_of(run).text_bytes
    assert left < sum(map(len, ENGLISH))
    # A token is two bytes or more, and weight decay is what lets a large model read a text four times.
    assert planned.training.max_tokens > 2 * run.training.max_tokens
    assert run.training.max_tokens <= 4 * left / 2 and run.training.optimizer.weight_decay
    assert run.tokenizer.vocab_size < planned.tokenizer.vocab_size
    assert run.shards == planned.shards
    assert horizon.tokens == run.training.max_tokens
    said = capsys.readouterr().err
    assert f"There are {left / 1e6:.2g} MB of text with" in said and "Traceback" not in said
    assert "chosen anew for" in folder.with_name("recipe.yaml").read_text()


def test_a_training_that_continues_with_another_length_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(recipes_run(folder_of(copies(12), tmp_path), 1, monkeypatch, changes=1)[0]) == 1


@pytest.mark.parametrize("times", [1, 12])
def test_nothing_is_chosen_anew_where_there_is_no_time_to_read_the_text_often(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,), horizon = recipes_run(folder_of(copies(times), tmp_path), 0.003, monkeypatch)
    assert horizon.tokens == run.training.max_tokens
    assert horizon.resized(10**12, reached=0).tokens <= 8 * text_of(run).text_bytes / 2


def test_text_that_is_repeated_only_without_its_copies_is_learned_with_weight_decay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is read four times, where 1.5 passes were planned, over which nothing is learned by heart."""
    (planned, run), _ = recipes_run(folder_of(copies(3), tmp_path), 0.012, monkeypatch)
    assert not planned.training.optimizer.weight_decay
    assert run.training.optimizer.weight_decay
    assert run.training.model == planned.training.model


def test_text_of_more_tokens_than_its_bytes_let_expect_is_read_as_often_as_other_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is with a language in which few characters are frequent."""
    chance = random.Random(1)
    characters = [chr(0x4E00 + number) for number in range(2_000)]

    def written(folder: Path) -> None:
        for number in range(100):
            (folder / f"{number}.txt").write_text("".join(chance.choices(characters, k=700)))

    (planned, run), horizon = recipes_run(folder_of(written, tmp_path), 1, monkeypatch)
    text = text_of(run)
    tokens = text.tokens(run.tokenizer.vocab_size)
    assert text.text_bytes / tokens < 2
    assert run.training.max_tokens == horizon.tokens > 1.4 * planned.training.max_tokens
    assert 3 * tokens < horizon.tokens <= 16 * tokens
    assert f" with {tokens:,} tokens, where " in capsys.readouterr().err


def test_text_of_somewhat_more_tokens_than_expected_is_read_as_often_as_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)

    def written(folder: Path) -> None:
        for number, text in enumerate(ENGLISH):
            codes = " ".join(chance.randbytes(4).hex() for _ in range(len(text) // 32))
            (folder / f"{number}.txt").write_text(f"{text} {codes}")

    runs, horizon = recipes_run(folder_of(written, tmp_path), 1, monkeypatch)
    tokens = text_of(runs[-1]).tokens(runs[-1].tokenizer.vocab_size)
    assert 3.2 * tokens < runs[0].training.max_tokens < 3.6 * tokens
    assert runs[-1].training.max_tokens == horizon.tokens == pytest.approx(4 * tokens, rel=0.01)


SMALLEST, SECOND, THIRD, FOURTH = SIZES[:4]


@pytest.mark.parametrize(
    ("scores", "trained", "kept"),
    [
        ({SMALLEST: 2.3, SECOND: 2.2, THIRD: 2.1}, [SMALLEST, THIRD, SECOND], THIRD),
        ({SMALLEST: 2.1, SECOND: 2.2, THIRD: 2.3}, [SMALLEST, THIRD, SECOND], SMALLEST),
        ({SMALLEST: 2.2, SECOND: 2.1, THIRD: math.nan}, [SMALLEST, THIRD, SECOND], SECOND),
        ({SMALLEST: 2.2, THIRD: math.nan}, [SMALLEST, THIRD], SMALLEST),
        ({SMALLEST: 2.2, THIRD: 2.1, FOURTH: 2.0}, [SMALLEST, THIRD, FOURTH], FOURTH),
        ({SMALLEST: 2.2, THIRD: 2.3, FOURTH: 2.0}, [SMALLEST, THIRD], SMALLEST),
    ],
)
def test_sizes_are_tried_in_the_time_that_little_text_leaves_and_the_best_is_kept(
    scores: dict[Size, float],
    trained: list[Size],
    kept: Size,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = folder_of(few_texts, tmp_path)
    run, horizon = recipes_run(folder, 1, monkeypatch, scores)
    # Where it is not the last, the best is asked for again, and found.
    expected = trained if trained[-1] == kept else [*trained, kept]
    assert [recipe.training.model for recipe in run] == [size.model for size in expected]
    data = [(recipe.shards, recipe.tokenizer, recipe.raw, recipe.corpora) for recipe in run]
    assert all(one == data[0] for one in data)
    left = load_recipe(path := folder.with_name("recipe.yaml"))
    assert left.training.model == kept.model and left.training.max_tokens == horizon.tokens
    known = sorted((scores[size], size.words) for size in trained if not math.isnan(scores[size]))
    said = ", ".join(f"{score:.3f} with {words}" for score, words in known)
    assert f"the best on the held-out text; bits per byte so far: {said}" in path.read_text()
    assert f"On the held-out text, bits per byte are {said}." in capsys.readouterr().out


def test_a_size_for_which_no_time_is_left_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {SMALLEST: 2.3, THIRD: 2.1}
    (run,), _ = recipes_run(folder_of(few_texts, tmp_path), 0.0055, monkeypatch, scores)
    assert run.training.model == SMALLEST.model


def test_a_text_that_ends_no_training_is_learned_by_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = dict.fromkeys(SIZES, 2.1)
    (run,), _ = recipes_run(folder_of(copies(1), tmp_path), 0.005, monkeypatch, scores)
    assert run.training.max_tokens


def test_a_recipe_that_somebody_changes_meanwhile_is_left_as_it_is_however_much_time_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = folder_of(few_texts, tmp_path), tmp_path / "recipe.yaml"
    chosen = choose(judged(folder), Wishes(3600.0), fixed_speed())
    assert chosen.length.limit == "text"
    write(path, chosen)

    def execute(*_: object) -> bool:
        path.write_text("corpora: [")
        return False

    monkeypatch.setattr(jobs, "execute", execute)
    Jobs(path, chosen, QuickStages(3600.0), tmp_path / "runs", fixed_speed()).run()
    assert path.read_text() == "corpora: ["
