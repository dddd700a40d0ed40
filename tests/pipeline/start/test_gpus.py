"""What `start` chooses on a machine with GPUs, as far as that can be known without one."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.recipe.loading import load_recipe
from pipeline.recipe.recipe import Recipe
from pipeline.start.choose import Chosen, Wishes, choose
from pipeline.start.folder.look import Folder
from pipeline.start.recipe_file import recipe_text
from pipeline.start.sizes import SIZES, Size
from pipeline.start.speed import Measured, Speed
from pipeline.store.errors import PipelineError
from tests.folders import chats
from tests.pipeline.start.test_start import fixed_speed, folder_of, judged


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return judged(folder_of(chats, tmp_path_factory.mktemp("folders")))


@pytest.fixture(scope="module")
def much(conversations: Folder) -> Folder:
    """The same with ten gigabytes of text."""
    return replace(
        conversations, corpora=tuple(replace(one, text_bytes=10**10) for one in conversations.corpora)
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Chosen], Recipe]:
    directory = tmp_path_factory.mktemp("recipes")

    def write(chosen: Chosen) -> Recipe:
        (directory / "recipe.yaml").write_text(recipe_text(chosen, directory))
        return load_recipe(directory / "recipe.yaml")

    return write


@settings(max_examples=40, deadline=None)
@given(
    gpus=st.integers(0, 20),
    hours=st.sampled_from([0.1, 1, 24]),
    speed=st.sampled_from([1e3, 1e5, 1e7]),
    chat=st.booleans(),
)
def test_all_gpus_that_can_share_a_batch_train(
    conversations: Folder,
    written: Callable[[Chosen], Recipe],
    gpus: int,
    hours: float,
    speed: float,
    chat: bool,
) -> None:
    chosen = choose(conversations, Wishes(3600 * hours, chat=chat), fixed_speed(speed, gpus))
    recipe = written(chosen)
    trainings = [recipe.training.model_dump()]
    if recipe.post_training.sft is not None:
        trainings.append(recipe.post_training.sft.training)
    windows = [one["global_batch_tokens"] // recipe.training.seq_len for one in trainings]
    processes = recipe.launch.nproc_per_node
    assert all(count % processes == 0 for count in windows)
    assert 2 * processes > min(gpus, windows[0]) or processes == 1
    assert recipe.launch.kind == ("torchrun" if processes > 1 else "subprocess")
    assert all((one["micro_batch_size"] == "auto") == (gpus > 0) for one in trainings)


def test_a_size_that_cannot_be_trained_here_gives_way_to_the_largest_that_can(much: Folder) -> None:
    fits = fixed_speed(1e5)._measure

    def size_chosen(largest: int) -> int:
        def measure(size: Size, *rest: object) -> Measured | None:
            if SIZES.index(size) > largest:
                raise PipelineError("training needs more memory")
            return fits(size, *rest)

        return SIZES.index(choose(much, Wishes(48 * 3600.0), Speed(measure=measure)).length.size)

    wanted = size_chosen(len(SIZES))
    assert wanted > 3
    assert [size_chosen(largest) for largest in range(2, wanted)] == [*range(2, wanted)]
    with pytest.raises(PipelineError, match="more memory"):
        size_chosen(0)


def test_a_small_size_that_fails_is_no_reason_to_give_up_a_larger_one(conversations: Folder) -> None:
    fits = fixed_speed()._measure

    def measure(size: Size, *rest: object) -> Measured | None:
        if size == SIZES[0]:
            raise PipelineError("no file can be written")
        return fits(size, *rest)

    with pytest.raises(PipelineError, match="no file can be written"):
        choose(conversations, Wishes(30.0), Speed(measure=measure))


def test_sizes_are_measured_until_the_one_that_is_chosen_has_been(much: Folder) -> None:
    """Small models leave most of a GPU idle, so that their speed says little of larger ones."""
    speed = Speed(measure=lambda *_: Measured(2e5, gpus=1))  # however large the model is
    chosen = choose(much, Wishes(24 * 3600.0), speed)
    assert chosen.speed_source == "measured on this machine"
    assert chosen.tokens_per_second == pytest.approx(0.8 * 2e5)
    assert SIZES.index(chosen.length.size) > 4
