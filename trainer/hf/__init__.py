"""Import and export in Hugging Face's format: names and layouts are the same, so tensors are only copied."""

from trainer.config.hugging_face import config_json, end_ids, model_config, read_config
from trainer.hf.adapter import load_adapter, save_adapter
from trainer.hf.check import check_export, check_with_transformers
from trainer.hf.directory import export, load_model, load_weights, weights
from trainer.hf.pretrained import Pretrained
