"""Whether the conversations of a folder can be learned, which is known before the pretraining."""

from pipeline.recipe.post_training import SFT
from pipeline.recipe.recipe import Recipe
from pipeline.start.folder.look import NothingReadableError
from pipeline.steps import checks
from pipeline.steps.corpus.ingest import Raw, first_reject
from pipeline.steps.recipe_versions import store_of
from pipeline.store.engines.local import LocalEngine
from pipeline.store.errors import PipelineError
from trainer.system import terminal


def read_conversations(recipe: Recipe) -> None:
    """Reads the conversations into the store, where the job `sft` finds them. The look at the folder was at a
    sample. Raises NothingReadableError if more of them cannot be learned than the recipe allows.
    """
    tuning = recipe.tuned(SFT)
    store, engine = store_of(tuning), LocalEngine(tuning.engine.workers)
    for stage in Raw.all_of(tuning):
        with terminal.doing(f"reading the conversations {stage.corpus}"):
            try:
                raw = stage.make(store, engine)
            except PipelineError as error:
                raise NothingReadableError(f"{error}, or leave out --chat") from error
        found = checks.little_set_aside(checks.Subject(raw, store, tuning))
        if not found.passed:
            raise NothingReadableError(
                f"the conversations {stage.corpus} cannot be learned: {found.message}. First, "
                f"{first_reject(raw, raw.parts)}: correct or remove such rows, or leave out --chat"
            )
