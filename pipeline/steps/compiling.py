"""Says that kernels are compiled, which takes half a minute on one core and happens once on a machine."""

from pipeline.stages import compiled
from trainer.system import terminal


def announce() -> None:
    """Lets this process say from now on when it compiles kernels."""
    compiled.announced = compiling


def compiling(stage: str) -> terminal.Activity:
    """Shows, while it is entered, that the kernels of a stage are compiled."""
    return terminal.doing(f"compiling kernels: {stage} (first run on this machine only)")
