"""What the web server and the daemon load, which is more than a job that is started by its name."""

import dagster as dg


def test_the_code_location_loads() -> None:
    from pipeline.definitions import defs

    repository = defs.get_repository_def()
    repository.load_all_definitions()
    assert {"pretrain", "retokenize", "verify"} <= set(repository.job_names)
    dg.Definitions.validate_loadable(defs)
