"""What is said of a version that nobody has made: what makes it."""

from pipeline.store.keys import Key


def not_made(key: Key, asset: Key, since: str = "yet", newest: str = "") -> str:
    """`asset` makes `key`. `newest`: what the newest version of the key has other than is wanted."""
    first = f"materialize {'it' if asset == key else asset} (for example with the job `pretrain`) first"
    if newest:
        since = f"for this recipe yet, the newest version has other {newest}"
    return f"{key} has not been made {since}: {first}"
