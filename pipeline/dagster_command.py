"""`python -m pipeline.dagster_command job execute -j pretrain`: Dagster's command. Ctrl-C ends it without a
stack trace also while Dagster is imported, and a place or port that it cannot use is one sentence.
"""

import importlib
import os
import runpy
import signal
import sys
import warnings
from contextlib import ExitStack

from trainer.system import ctrl_c

if __name__ == "__main__":
    ctrl_c.ends_the_program()
    from trainer.system.errors import USER_ERROR, TrainerError
    from trainer.system.paths import check_home

    starts_ui, held = sys.argv[1:2] == ["dev"], ExitStack()
    try:
        check_home()
        if starts_ui:
            from pipeline.assets.operations.ui_start import check_port, only_ui

            check_port(sys.argv[2:])
            held.enter_context(only_ui())
        if "%" in sys.prefix:  # which stands for a variable in the settings of Dagster's databases
            what = "Dagster cannot be used from a folder with '%' in its path: rename that, and install again"
            raise TrainerError(f"{sys.prefix}: {what}")
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    if "error" in os.environ.get("PYTHONWARNINGS", ""):  # Dagster and others warn at each start
        os.environ["PYTHONWARNINGS"] = "ignore"  # of what this process starts
        warnings.simplefilter("ignore")
    importlib.import_module("dagster._cli")
    if starts_ui:  # ends the processes that it has started on a KeyboardInterrupt alone
        # They end by SIGINT: they must not inherit that it is ignored, as in the background of a script.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
    with held:
        runpy.run_module("dagster", run_name="__main__", alter_sys=True)
