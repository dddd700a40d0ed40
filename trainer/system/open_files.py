"""How many files a process may have open, which its children inherit."""

import resource

from trainer.system.errors import TrainerError

LEAST = 512  # dedup reads 256 files at once, and Dagster, Arrow and torch have theirs
ENOUGH = 4096


def allow_enough() -> None:
    """Raises the soft limit to ENOUGH, or to the hard one. Raises TrainerError if that is below LEAST."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if most < LEAST:
        raise TrainerError(
            f"a process may open {most} files here, and {LEAST} are needed: raise the hard limit, with "
            f"LimitNOFILE of systemd, `docker run --ulimit nofile={ENOUGH}` or /etc/security/limits.conf"
        )
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
