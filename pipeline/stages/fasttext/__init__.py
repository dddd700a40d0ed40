"""A reader of fastText classifiers: `read_model` opens a file, `scores` judges texts by it."""

from pipeline.stages.fasttext.model import Model, read_model
from pipeline.stages.fasttext.scores import VERSION, scores
