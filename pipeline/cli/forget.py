"""forget: keeps documents out of all that is made from now on; `gc --forgotten` deletes what holds them."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from pipeline.cli.opening import UsageError, is_file, text_of, whole_store
from pipeline.reports import tables
from pipeline.steps.forget import certificate, to_forget
from pipeline.steps.forget.copies import Copy, copies
from pipeline.steps.lineage.readers import Reading, readings
from pipeline.store import keys
from pipeline.store.cleanup.holding_forgotten import Holding, holding
from pipeline.store.forgotten import among, forget
from pipeline.store.store import Store
from trainer.system import terminal
from trainer.system.wording import counted

DOCUMENTS_SHOWN = 10  # in each list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "documents",
        metavar="ID",
        nargs="+",
        help="a document: its id in the store, the id that the source gives it, or its URL; a file that a "
        "corpus was read from, as `trace` shows it, or a corpus, for all of its documents; or a file with "
        "one of these on each line, or - for standard input",
    )
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="the reason, which goes into the certificate"
    )
    parser.add_argument("--yes", action="store_true", help="remove them; without --yes, only show the effect")
    parser.add_argument(
        "--retrain-tokenizer",
        action="store_true",
        help="`gc --forgotten` also deletes the tokenizers that were trained on them, and the next run "
        "trains another",
    )


def run(options: argparse.Namespace) -> None:
    if not options.reason.strip():
        raise UsageError("--reason: is empty: say why, for the certificate")
    store = whole_store()
    named = _named(store, options.documents)
    with terminal.doing("looking for the documents and for what was made from them"):
        requested = to_forget.find(store, named, options.retrain_tokenizer)
        documents = requested.documents
        ids = set().union(*documents.values())
        read = list(readings(store, ids))
        held = holding(store, partial(among, ids), options.retrain_tokenizer)
        copied = copies(store, documents)
    for line in forgotten_before(requested):
        print(line)
    if not documents:
        return
    for corpus, of_corpus in documents.items():
        more = ", ..." if len(of_corpus) > 3 else ""
        print(f"{len(of_corpus):,} of corpus {corpus}: {', '.join(sorted(of_corpus)[:3])}{more}")
    print("\n".join([*read_by(read), *costs(held)]))
    if not held.of(keys.TOKENIZER):
        print("the tokenizer is frozen and stays; --retrain-tokenizer trains another")
    for line in left_elsewhere(to_forget.returning(store, ids), copied):
        print(line)
    if not options.yes:
        print("nothing was changed; the same command with --yes removes them")
        return
    with store.idle():
        folder, _ = forget(
            store.files,
            documents,
            options.reason,
            retrain_tokenizer=options.retrain_tokenizer,
            named={*named} - requested.earlier.keys(),
            prove=partial(certificate.begin, read=read, held=held, copied=copied),
        )
    print(
        f"the next run of each recipe sets them aside; {folder / certificate.CERTIFICATE} says what was found"
    )
    print(
        "`python -m pipeline gc --forgotten` deletes what holds them; run the recipes first, so that it keeps"
        " what is the same without them"
    )


def _named(store: Store, places: Sequence[str]) -> list[str]:
    """The names of documents, on the command line or in the files that it names. A file that a corpus was
    read from, in the folder where the command runs, is no list of names. Raises UsageError.
    """
    lines: list[str] = []
    for place in places:
        is_source = is_file(place) and to_forget.is_file_of_a_source(store, place)
        lines += [place] if is_source else text_of(place).splitlines()
    named = list(filter(None, map(str.strip, lines)))
    if not named:
        raise UsageError(f"{places[0]}: names no document: give an id, a URL or a corpus on each line")
    return named


def forgotten_before(requested: to_forget.Requested) -> Iterator[str]:
    """When each document was forgotten that an earlier request named."""
    for name, (folder, request) in islice(sorted(requested.earlier.items()), DOCUMENTS_SHOWN):
        page = folder / certificate.PAGE
        told = f"; {page} says what was found and deleted" if page.exists() else ""
        yield f"{name} was removed on {request.at[: certificate.DAY]}{told}"
    if len(requested.earlier) > DOCUMENTS_SHOWN:
        yield f"and so were {len(requested.earlier) - DOCUMENTS_SHOWN:,} more"
    if requested.held:
        yield "`python -m pipeline gc --forgotten` deletes what still holds what was removed before"


def read_by(read: Sequence[Reading]) -> Iterator[str]:
    """What happened to each of a few documents, and the checkpoints that read any of them."""
    told = {name: fate for one in read for name, fate in one.fates.items()}
    yield from (f"{name}: {fate}" for name, fate in told.items())
    rows = [
        [
            one.checkpoint,
            *("?" if it is None else f"{it:,}" for it in (one.steps, one.first, one.last)),
            one.through or "",
        ]
        for one in read
        if one.steps != 0
    ]
    if not rows:
        yield "no checkpoint on disk has read them"
        return
    yield from tables.table("read by,steps,first,last,through the weights of", rows)
    if any(one.steps is None for one in read):
        yield "?: its run or its text is in no store that could be found, and only its own store can tell"


def left_elsewhere(returning: Mapping[str, str], copied: Sequence[Copy]) -> Iterator[str]:
    """The duplicates that come back, each with the document for which it was left out; and other copies."""
    for back, survivor in islice(returning.items(), DOCUMENTS_SHOWN):
        yield f"{back} was left out as a duplicate of {survivor}: it comes back, unless it is removed, too"
    if len(returning) > DOCUMENTS_SHOWN:
        yield f"and so do {len(returning) - DOCUMENTS_SHOWN:,} more duplicates"
    others = [copy for copy in copied if copy.document not in returning]
    for copy in others[:DOCUMENTS_SHOWN]:
        named_by = f", as {copy.document}" if copy.document else ""
        yield f"{copy.what} is also in {copy.place}{named_by}: it stays, unless it is removed, too"
    if len(others) > DOCUMENTS_SHOWN:
        yield f"and so do {len(others) - DOCUMENTS_SHOWN:,} more copies"


def costs(held: Holding) -> Iterator[str]:
    """What goes, and what making it again takes."""
    for family in (keys.EXPORTED_MODEL, *keys.INDEXED):
        yield from (f"goes: {one.path}" for one in held.of(family))
    runs = f" and {counted(len(held.runs), 'training runs')}" if held.runs else ""
    yield f"removing them deletes {counted(len(held.versions), 'versions')}{runs}, {held.bytes / 1e6:,.1f} MB"
    seconds = sum(version.seconds for version in held.versions if version.key.is_data)
    yield f"the data took {seconds:,.0f} s to make; parts that stay the same are reused"
    if held.runs:
        seconds = sum(one.seconds for one in held.of(keys.PRETRAINED_MODEL))
        yield (
            f"the training took {seconds:,.0f} s; it starts again from the beginning or, with `packing: "
            "documents`, from before the first step that read them"
        )
