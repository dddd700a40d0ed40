"""`python -m pipeline.dagster_command job execute -j pretrain`: Dagster's command. Ctrl-C ends it without a
stack trace also while Dagster is imported.
"""

import runpy

from trainer.system import ctrl_c

if __name__ == "__main__":
    ctrl_c.ends_the_program()
    runpy.run_module("dagster", run_name="__main__", alter_sys=True)
