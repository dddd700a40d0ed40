"""A recipe's `retention` section."""

from pydantic import Field

from pipeline.store.params import Params


class RetentionParams(Params):
    """How many training runs and checkpoints of this recipe stay on disk. Applied when a model was exported;
    `python -m pipeline gc` shows what would go.
    """

    runs: int | None = Field(
        None,
        ge=1,
        description="Newest training runs that are kept, with their evaluations and exports. The "
        "configuration of a removed run stays for `lineage`. When not set, all are kept.",
    )
    checkpoints: int | None = Field(
        None,
        ge=1,
        description="Newest checkpoints that are kept of each exported run, besides those of "
        "`checkpoint.keep_every_tokens`. When not set, as many as training kept.",
    )
