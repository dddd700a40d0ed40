"""`python -m trainer.system.torchrun` takes torchrun's options, waits for a large model to be saved, and
ends as the trainer does: with its exit status, and without a traceback of torchrun's own.
"""

import logging
import os
import signal
import socket
import sys

from trainer.system import launch
from trainer.system.errors import PROCESS_LOST, RESUMABLE, USER_ERROR, first_line

# What torchrun says of every end, expected or not.
TALKATIVE = ("torch.distributed.elastic.agent.server.api", "torch.distributed.elastic.multiprocessing.api")
CPP_LEVEL = "TORCH_CPP_LOG_LEVEL"  # PyTorch reads it when it is imported


def main(arguments: list[str]) -> int:
    """The status of the first process that failed; PROCESS_LOST if they do not meet; RESUMABLE if a signal
    ended all; 0 if all are done.
    """
    # torchrun reads them in this process.
    for name, value in (launch.RENDEZVOUS | launch.PATIENCE | launch.FORWARDED).items():
        os.environ.setdefault(name, value)
    # Imported late, so that nothing else of this package loads torch.
    if CPP_LEVEL not in os.environ:  # of a machine that does not answer it would print C++ frames
        os.environ[CPP_LEVEL] = "FATAL"
        import torch  # noqa: F401

        del os.environ[CPP_LEVEL]  # the trainers say what they have to say
    from torch.distributed import DistError, run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    news = _News()
    for name in TALKATIVE:
        logging.getLogger(name).addFilter(news)
    options = run.parse_args(arguments)
    if options.standalone and options.local_addr is None:
        # By default the name of this machine, which many a container cannot resolve.
        options.local_addr = "127.0.0.1"
    if not options.standalone and options.nnodes not in ("1", "1:1"):
        place = options.rdzv_endpoint or f"{options.master_addr}:{options.master_port}"
        print(f"torchrun on {socket.gethostname()} meets the others at {place}", file=sys.stderr, flush=True)
    try:
        run.run(options)
    except (RendezvousError, DistError) as error:
        why = first_line(error.__cause__ or error).rstrip(".")
        print(
            f"trainer: torchrun on {socket.gethostname()} does not meet those of the other machines ({why}): "
            "--rdzv-endpoint, or --master-addr and --master-port, must name a machine on which torchrun "
            "runs, and a free port of it. Correct it, and start all of them again",
            file=sys.stderr,
        )
        return PROCESS_LOST
    except SignalException as error:
        if news.killed:
            print(
                "trainer: a process took too long to save after the signal and was killed; run again to "
                "resume from the newest checkpoint",
                file=sys.stderr,
            )
            return 128 + signal.SIGKILL
        # The trainer's own, which has said why: see `trainer.__main__`.
        return USER_ERROR if error.sigval == signal.SIGQUIT else RESUMABLE
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode in (USER_ERROR, RESUMABLE):
            return failure.exitcode
        print(f"trainer: process {rank} {launch.ended(failure.exitcode)}", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    return 0


class _News(logging.Filter):
    """Lets lines through that say more than that processes end because one has ended."""

    killed = False  # whether torchrun gave up waiting for a process, which only its log says

    def filter(self, record: logging.LogRecord) -> bool:
        self.killed |= str(record.msg).startswith("Unable to shutdown process")
        status = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return record.levelno >= logging.ERROR and status not in (USER_ERROR, RESUMABLE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
