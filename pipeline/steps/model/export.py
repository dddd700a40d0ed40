"""A finished run -> exported_model: a directory for `transformers` with card, pictures, lineage."""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer, processors

from pipeline.recipe.recipe import Recipe
from pipeline.stages import bpe
from pipeline.steps.model import evaluate, funnel, training_plots
from pipeline.steps.model.model_card import model_card
from pipeline.steps.stage import Stage
from pipeline.steps.training import plan
from pipeline.steps.training.effort import Effort
from pipeline.store import keys
from pipeline.store.keys import Key
from pipeline.store.manifest import File, Part, Version
from pipeline.store.store import Store
from pipeline.store.work import Work
from trainer.config.model_files import CONFIG, TOKENIZER, TOKENIZER_CONFIG
from trainer.system.durable import read_json, write_atomically
from trainer.system.run_history import RunHistory

VERSION = "export-8"
CHAT_TEMPLATE = "chat_template.jinja"
TRAINING_TEMPLATE = "chat_template_training.jinja"  # under this name `transformers` does not read it


@dataclass(frozen=True)
class ExportedModel(Stage):
    """The final checkpoint as others read it."""

    name = keys.EXPORTED_MODEL

    @classmethod
    def all_of(cls, recipe: Recipe) -> Iterable[Self]:
        return [cls()]

    @property
    def inputs(self) -> Sequence[Key]:
        return [keys.PRETRAINED_MODEL, keys.EVALUATION]

    def work(self, store: Store) -> Work:
        return Work(self.key, VERSION, {}, store.data_versions(self.inputs))


def export(store: Store) -> Version:
    """Copies the files of the final checkpoint, prepares the tokenizer for prompts, adds `README.md`."""
    model, evaluation = store.current(keys.PRETRAINED_MODEL), store.current(keys.EVALUATION)
    with store.making(ExportedModel().work(store)) as draft:
        if isinstance(draft, Version):
            return draft
        result = plan.result(store, model)
        lineage = read_json(result["checkpoint"] / "lineage.json")
        checkpoint = store.files.fetch_folder(result["checkpoint"])
        shutil.copytree(checkpoint / "hf", draft.path, dirs_exist_ok=True)
        evaluated = evaluate.read(evaluation)
        _prepare_tokenizer(draft.path, answers="tuning" in evaluated)
        shutil.copy(result["run_dir"] / "loss.png", draft.path / "loss.png")
        (draft.path / "training.png").write_bytes(training_plots.draw(RunHistory(result["run_dir"])))
        effort = Effort.of(model, lineage["recipe"].get("launch", {}).get("usd_per_hour"))
        lineage = published(lineage)
        write_atomically(draft.path / "lineage.json", json.dumps(lineage, indent=1, ensure_ascii=False))
        (draft.path / "funnel.png").write_bytes(funnel.draw(funnel.of_lineage(lineage)))
        write_atomically(draft.path / "README.md", model_card(lineage, evaluated, effort))
        # A killed attempt may have left a hidden temporary file.
        paths = [path for path in sorted(draft.path.glob("[!.]*")) if path.is_file()]
        files = {path.name: File.of(path, draft.path) for path in paths}
        return draft.publish([Part(keys.EXPORTED_MODEL, draft.work.fingerprint, files)])


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


def _prepare_tokenizer(directory: Path, answers: bool) -> None:
    """Changes the tokenizer of an exported model: it puts the begin-of-text token before each text, and
    `model_max_length` is the number of tokens that the model was trained on at a time. For one that `answers`
    it knows how conversations are written, for programs that train, too, and `[END]` ends a text.
    """
    model = read_json(directory / CONFIG)
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER))
    settings = read_json(directory / TOKENIZER_CONFIG)
    _begin_texts_with(tokenizer, model["bos_token_id"])
    settings |= {
        "model_max_length": model["max_position_embeddings"],
        # what the model takes; transformers 4 adds `token_type_ids` otherwise
        "model_input_names": ["input_ids", "attention_mask"],
        # transformers 5 makes the template anew from these two
        "add_bos_token": True,
        "add_eos_token": False,
    }
    if answers:
        # A tokenizer stays as it was frozen, so an older one has the template of its time.
        settings |= {"eos_token": bpe.CONTROL["end"], "chat_template": bpe.CHAT_TEMPLATE}
        write_atomically(directory / CHAT_TEMPLATE, bpe.CHAT_TEMPLATE)
        write_atomically(directory / TRAINING_TEMPLATE, bpe.TRAINING_TEMPLATE)
        (directory / "special_tokens_map.json").unlink(missing_ok=True)  # it would say [EOT]
    else:  # the tokenizer may be ready for what the model has not learned
        settings.pop("chat_template", None)
        (directory / CHAT_TEMPLATE).unlink(missing_ok=True)
    write_atomically(directory / TOKENIZER, tokenizer.to_str(pretty=True))
    write_atomically(directory / TOKENIZER_CONFIG, json.dumps(settings, indent=2, ensure_ascii=False))


def _begin_texts_with(tokenizer: Tokenizer, begin: int) -> None:
    """Replaces a template that was there: it may end a text, or begin it with another token."""
    token = tokenizer.id_to_token(begin)
    template = processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", f"{token}:1", "$B:1"], special_tokens=[(token, begin)]
    )
    others = tokenizer.post_processor if not tokenizer.encode("").ids else None
    tokenizer.post_processor = processors.Sequence([others, template]) if others else template
