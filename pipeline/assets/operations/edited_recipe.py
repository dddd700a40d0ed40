"""What to say of a run that the UI planned before an edit added assets to the recipe, or removed some.

The process of a run reads the recipe as it is now. The UI knows the recipe that it read when it started.
"""

import dagster as dg

RELOAD = "reload the code location, on the page Deployment of the UI, and start the run again"
# Errors with which Dagster refuses the plan of a run whose assets are gone.
REFUSED = ("DagsterExecutionStepNotFoundError", "DagsterInvalidSubsetError")


def added_since(context: dg.OpExecutionContext) -> str:
    """The end of the sentence about a run's failure: which assets of its job the run lacks."""
    run, instance = context.run, context.instance
    if run.remote_job_origin is None or run.job_snapshot_id is None:  # planned where it runs
        return ""
    planned = instance.get_job_snapshot(run.job_snapshot_id)
    if chosen := planned.lineage_snapshot:  # some assets of a job
        planned = instance.get_job_snapshot(chosen.parent_snapshot_id)
    known = {node.node_name for node in planned.dep_structure_snapshot.node_invocation_snaps}
    added = [
        node.name.replace("__", "/")
        for node in context.repository_def.get_job(run.job_name).nodes
        if node.name not in known
    ]
    if not added:
        return ""
    return f". The recipe has assets that the UI has not read yet ({', '.join(sorted(added))}): {RELOAD}"


def removed_since(error: str) -> str:
    """The end of the sentence about a failed run, if its assets are gone. `error`: the class that Dagster
    raised.
    """
    return (
        f". The recipe has lost assets of this run since the UI read it: {RELOAD}" if error in REFUSED else ""
    )
