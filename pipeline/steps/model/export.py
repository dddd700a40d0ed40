"""A finished run -> exported_model: a directory that `transformers` opens, with model card, pictures,
lineage.
"""

import json
import shutil
from typing import Any

from pipeline.steps.model import evaluate, exported_tokenizer, funnel, training_plots
from pipeline.steps.model.model_card import model_card
from pipeline.steps.training import plan
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.errors import PipelineError
from pipeline.store.manifest import File, Part, Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.config import ModelConfig
from trainer.system.durable import read_json_lines, write_atomically

VERSION = "export-5"


def export(store: Store) -> Version:
    """Copies the Hugging Face files of the final checkpoint, prepares the tokenizer for prompts, and adds a
    `README.md`.

    Raises PipelineError when no architecture of transformers computes the model.
    """
    model, evaluation = store.current(keys.PRETRAINED_MODEL), store.current(keys.EVALUATION)
    with store.making(export_work(store)) as draft:
        if isinstance(draft, Version):
            return draft
        result = plan.result(store, model)
        lineage = json.loads((result["checkpoint"] / "lineage.json").read_text(encoding="utf-8"))
        if not_stock := ModelConfig.model_validate(lineage["training"]["config"]["model"]).not_stock:
            raise PipelineError(
                f"{result['checkpoint']} cannot be exported: no architecture of transformers has "
                f"training.model.{' and '.join(not_stock)}. Train without it to export, or use the "
                "checkpoint with `python -m trainer evaluate` and `generate`"
            )
        checkpoint = store.files.fetch_folder(result["checkpoint"])
        shutil.copytree(checkpoint / "hf", draft.path, dirs_exist_ok=True)
        exported_tokenizer.prepare(draft.path)
        shutil.copy(result["run_dir"] / "loss.png", draft.path / "loss.png")
        (draft.path / "training.png").write_bytes(
            training_plots.draw(read_json_lines(result["run_dir"] / "metrics.jsonl"))
        )
        effort = Effort.of(model, lineage["recipe"].get("launch", {}).get("usd_per_hour"))
        lineage = published(lineage)
        write_atomically(draft.path / "lineage.json", json.dumps(lineage, indent=1, ensure_ascii=False))
        (draft.path / "funnel.png").write_bytes(funnel.draw(funnel.of_lineage(lineage)))
        write_atomically(draft.path / "README.md", model_card(lineage, evaluate.read(evaluation), effort))
        # A killed attempt may have left a hidden temporary file.
        paths = [path for path in sorted(draft.path.glob("[!.]*")) if path.is_file()]
        files = {path.name: File.of(path, draft.path) for path in paths}
        return draft.publish([Part(keys.EXPORTED_MODEL, draft.work.fingerprint, files)])


def export_work(store: Store) -> Work:
    made_from = map(store.current, (keys.PRETRAINED_MODEL, keys.EVALUATION))
    inputs = {version.key: version.data_version for version in made_from}
    return Work(keys.EXPORTED_MODEL, VERSION, {}, inputs)


def published(lineage: dict[str, Any]) -> dict[str, Any]:
    """The lineage for publication: paths as written in the recipe, no absolute paths, no host names. The same
    holds for the lineage of the model that training started from.
    """
    as_written = {"pretrained": lineage["recipe"]["training"].get("pretrained")}
    recipe = {name: section for name, section in lineage["recipe"].items() if name != "launch"}
    training = lineage["training"]
    weights = lineage.get("pretrained", {})
    if base := weights.get("lineage"):
        lineage = lineage | {"pretrained": weights | {"lineage": published(base)}}
    return lineage | {"recipe": recipe, "training": training | {"config": training["config"] | as_written}}
