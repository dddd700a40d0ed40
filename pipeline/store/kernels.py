"""Where compiled kernels are kept, for the stages, which know nothing of the trainer."""

from trainer.system.kernels import find_place

__all__ = ["find_place"]
