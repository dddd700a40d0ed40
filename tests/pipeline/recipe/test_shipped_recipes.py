"""The recipes that ship: each loads by its name and fits the machine that it is for."""

from dataclasses import dataclass

import pytest
import torch

from pipeline.recipe.loading import load_recipe, recipe_path
from pipeline.recipe.recipe import RECIPES, Recipe
from pipeline.stages.bpe import TokenizerParams
from trainer.run.fit.memory import Footprint
from trainer.run.fit.micro_batch import fitting
from trainer.system.gpus import GPUS


@dataclass(frozen=True)
class Target:
    """What a recipe says it is: parameters from and to, and `memory` bytes for each of `processes`."""

    parameters: tuple[float, float]
    memory: int
    processes: int = 1


TARGETS = {
    "tiny": Target((1e6, 2e6), memory=2 * 10**9),
    "default": Target((7e6, 8e6), memory=4 * 10**9),
    "curriculum": Target((7e6, 8e6), memory=4 * 10**9),
    "local": Target((16e6, 18e6), memory=8 * 10**9),
    "gpu": Target((124e6, 140e6), GPUS["rtx4090"].memory),
    "llama-171m": Target((170e6, 172e6), memory=12 * 10**9),
    "gpu-1b": Target((1.1e9, 1.3e9), GPUS["h100"].memory, processes=8),
    "7b": Target((6.6e9, 7e9), GPUS["h100"].memory, processes=8),
}
HEAVY = {"7b", "llama-171m", "curriculum", "local"}  # for the estimate of memory, which takes seconds


@pytest.fixture(scope="module", params=sorted(TARGETS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")  # measuring a footprint takes seconds
def recipe(name: str) -> Recipe:
    """With what `micro_batch_size: auto` stands for on its machine."""
    recipe, target = load_recipe(recipe_path(name)), TARGETS[name]
    if recipe.training.micro_batch_size != "auto":
        return recipe
    gpu = torch.device("cuda")
    sizes = fitting(
        Footprint.measure(recipe.training, vocab_size(recipe), target.processes, gpu),
        target.processes,
        target.memory,
    )
    training = recipe.training.model_copy(update={"micro_batch_size": sizes[0]})
    return recipe.model_copy(update={"training": training})


def vocab_size(recipe: Recipe) -> int:
    assert isinstance(recipe.tokenizer, TokenizerParams)
    return recipe.tokenizer.vocab_size


def memory(name: str, recipe: Recipe) -> int:
    """Bytes in each process at the peak of a step."""
    training, target, device = recipe.training, TARGETS[name], torch.device("cuda")
    if target.memory not in {gpu.memory for gpu in GPUS.values()}:
        training, device = training.model_copy(update={"precision": "fp32"}), torch.device("cpu")
    return Footprint.measure(training, vocab_size(recipe), target.processes, device).memory().total


def test_every_recipe_that_ships_is_known_here() -> None:
    assert {path.stem for path in RECIPES.glob("*.yaml")} == set(TARGETS)


def test_the_model_has_the_parameters_that_its_name_promises(name: str, recipe: Recipe) -> None:
    fewest, most = TARGETS[name].parameters
    assert fewest <= recipe.training.model.parameters(vocab_size(recipe)) <= most


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] * (one in HEAVY)) for one in sorted(TARGETS)],
    scope="module",
)
def test_training_fits_its_machine_with_a_tenth_to_spare(name: str, recipe: Recipe) -> None:
    assert memory(name, recipe) < 0.9 * TARGETS[name].memory


def test_it_is_started_in_as_many_processes_as_its_machine_has_and_a_step_divides_among_them(
    name: str, recipe: Recipe
) -> None:
    training, processes = recipe.training, TARGETS[name].processes
    windows = training.micro_batch_windows * processes
    assert all(
        stage.global_batch_tokens % (training.seq_len * windows) == 0 for stage in training.curriculum.stages
    )
    assert processes == 1 or recipe.launch.nproc_per_node == processes
    parallel = training.parallel
    assert not parallel.splits_model or parallel.dp_shard * parallel.tp * parallel.pp == processes


def test_the_schedule_warms_up_and_the_run_is_seen_and_saved_on_its_way(recipe: Recipe) -> None:
    training = recipe.training
    assert 0 < training.schedule.warmup_tokens <= 0.05 * training.max_tokens
    for every in (training.checkpoint.every_tokens, training.evaluation.every_tokens):
        assert every is not None
        assert 2 <= training.max_tokens / every <= 100
    assert vocab_size(recipe) <= 65_536  # token ids take two bytes


def test_the_171m_model_is_trained_as_its_article_says() -> None:
    recipe = load_recipe(recipe_path("llama-171m"))
    training = recipe.training
    shape = (training.model.n_layers, training.seq_len, training.global_batch_tokens, vocab_size(recipe))
    assert shape == (12, 512, 8 * 512, 50_000)
    assert (training.optimizer.kind, training.optimizer.lr) == ("adamw", 1e-3)
    assert training.schedule.warmup_tokens == 1000 * training.global_batch_tokens


def test_the_curriculum_reads_rough_text_first_and_the_best_last_while_the_rate_falls() -> None:
    training = load_recipe(recipe_path("curriculum")).training
    shares = {stage.name: stage.tokens / training.max_tokens for stage in training.curriculum.stages}
    assert shares == {"foundation": 0.4, "knowledge": 0.3, "reasoning": 0.2, "synthesis": 0.1}
    best = [
        (stage.weights or {}).get("standard_library", 0) / sum((stage.weights or {}).values())
        for stage in training.stages
    ]
    assert best == sorted(best) and best[-1] == 1
    assert training.schedule.decay_fraction == shares["synthesis"]
