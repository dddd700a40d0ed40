"""A finished run -> exported_model: a directory that `transformers` opens, with its model card, pictures and
lineage.
"""

import json
import shutil
from typing import Any

from pipeline.steps.model import evaluate as evaluate_flow
from pipeline.steps.model import funnel, training_plots
from pipeline.steps.model.model_card import model_card
from pipeline.steps.training import plan as train_flow
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.versions import File, Part, Store, Version, Work
from trainer.config import ModelConfig
from trainer.system.durable import read_json_lines, write_atomically

VERSION = "export-4"


def export(store: Store) -> Version:
    """Copies the Hugging Face files of the final checkpoint and writes `README.md` beside them.

    PipelineError when no stock architecture computes the model.
    """
    model, evaluation = store.current(keys.PRETRAINED_MODEL), store.current(keys.EVALUATION)
    inputs = {model.key: model.data_version, evaluation.key: evaluation.data_version}
    with store.making(Work(keys.EXPORTED_MODEL, VERSION, {}, inputs)) as draft:
        if isinstance(draft, Version):
            return draft
        result = train_flow.result(store, model)
        lineage = json.loads((result["checkpoint"] / "lineage.json").read_text(encoding="utf-8"))
        if not_stock := ModelConfig.model_validate(lineage["training"]["config"]["model"]).not_stock:
            raise PipelineError(
                f"{result['checkpoint']}: no architecture of transformers has "
                f"training.model.{' and '.join(not_stock)}, so the model cannot be "
                "exported; `python -m trainer evaluate` and `generate` read the checkpoint, a model for "
                "others must be trained without"
            )
        shutil.copytree(result["checkpoint"] / "hf", draft.path, dirs_exist_ok=True)
        shutil.copy(result["run_dir"] / "loss.png", draft.path / "loss.png")
        (draft.path / "training.png").write_bytes(
            training_plots.draw(read_json_lines(result["run_dir"] / "metrics.jsonl"))
        )
        lineage = _published(lineage)
        write_atomically(draft.path / "lineage.json", json.dumps(lineage, indent=1, ensure_ascii=False))
        (draft.path / "funnel.png").write_bytes(funnel.draw(funnel.of_lineage(lineage)))
        write_atomically(draft.path / "README.md", model_card(lineage, evaluate_flow.read(evaluation)))
        # A killed attempt may have left a hidden temporary file.
        files = {
            path.name: File.of(path, draft.path)
            for path in sorted(draft.path.iterdir())
            if path.is_file() and path.name[0] != "."
        }
        return draft.publish([Part(keys.EXPORTED_MODEL, draft.work.fingerprint, files)])


def _published(lineage: dict[str, Any]) -> dict[str, Any]:
    """A lineage without places: where things lie it tells as the recipe does, not as the trainer's settings
    do, and on which machines not at all.
    """
    told = {"pretrained": lineage["recipe"]["training"]["pretrained"]}
    recipe = {name: section for name, section in lineage["recipe"].items() if name != "launch"}
    return lineage | {
        "recipe": recipe,
        "training": lineage["training"] | {"config": lineage["training"]["config"] | told},
    }
