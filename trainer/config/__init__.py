"""The configuration of a run: model, training and data. Never imports torch."""

from trainer.config.base import Config
from trainer.config.bookkeeping import CheckpointConfig, SamplesConfig
from trainer.config.data import CorpusShards, DataConfig
from trainer.config.lr_schedule import ScheduleConfig
from trainer.config.model import InitConfig, ModelConfig, PretrainedConfig
from trainer.config.optimizer import OptimizerConfig, ParameterGroup
from trainer.config.parallel import ParallelConfig
from trainer.config.run import (
    RunConfig,
    config_hash,
    format_validation_error,
    from_record,
    load_run_config,
    load_to_train,
    numbers,
    override,
    run_config_of,
    run_identity,
    samples_of,
)
from trainer.config.training import OPERATIONAL, TrainingConfig
from trainer.config.tuning import ChatIds, DpoConfig, LoraConfig
