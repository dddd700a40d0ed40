"""Dedup beside its peers, on one core: signatures, the whole of it from Parquet to decisions, and the quality of the decisions.

`python benchmarks/dedup.py` needs the sample corpora in ../shared/corpora; rensa and datatrove (with spaCy) are measured where importable.
Contenders take turns, so that noise meets all of them; figures are medians. Slow peers get a smaller sample of the same documents.
"""

import datetime
import importlib.util
import io
import json
import platform
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import datasketch
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
import zstandard

from pipeline.stages.dedup import DedupParams, ShingleSets, deduplicate, jaccard, shingle_sets, signatures

ROOT = Path(__file__).parents[1]
CORPORA = ROOT.parent / "shared" / "corpora"
RESULTS = ROOT / "benchmarks" / "results" / "dedup.json"
PARAMS = DedupParams()
MEGABYTES, PEER_MEGABYTES, SLOW_MEGABYTES, REPEATS = 100, 10, 1, 5
WORD = re.compile(r"\w+")

Texts = list[str]


def real_texts() -> Iterator[str]:
    """Articles, proposals and books, the long ones cut at paragraphs to at most 8,000 characters."""
    for name in ("enwiki", "techdocs", "labelled/neardup_articles_2500", "books"):
        with (CORPORA / f"{name}.jsonl.zst").open("rb") as file:
            for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
                piece = ""
                for paragraph in json.loads(line)["text"].split("\n\n"):
                    if piece and len(piece) + len(paragraph) > 8000:
                        yield piece
                        piece = ""
                    piece += paragraph + "\n\n"
                yield piece


def edited(text: str, generator: np.random.Generator) -> str:
    """The text with one to three runs of up to 6% of its words left out, doubled or changed."""
    words = text.split(" ")
    for _ in range(int(generator.integers(1, 4))):
        at, size = int(generator.integers(len(words))), 1 + int(len(words) * generator.uniform(0, 0.06))
        words[at : at + size] = [[], words[at : at + size] * 2, ["changed"] * size][int(generator.integers(3))]
    return " ".join(words)


def corpus() -> Texts:
    """About 100 MB: the real texts in an order without meaning, and near duplicates of random ones to fill up."""
    generator = np.random.default_rng(0)
    texts = list(real_texts())
    size, originals = sum(len(text.encode()) for text in texts), [text for text in texts if len(text) > 400]
    while size < MEGABYTES * 1e6:
        texts.append(edited(originals[int(generator.integers(len(originals)))], generator))
        size += len(texts[-1].encode())
    return [texts[i] for i in generator.permutation(len(texts))]


def sample(texts: Texts, megabytes: float) -> Texts:
    total = np.cumsum([len(text.encode()) for text in texts])
    return texts[: int(np.searchsorted(total, megabytes * 1e6))]


def batch(texts: Texts) -> pa.RecordBatch:
    return pa.record_batch({"id": [f"{i:08}" for i in range(len(texts))], "text": pa.array(texts, pa.large_string())})


def parquet(texts: Texts, folder: Path) -> Path:
    path = folder / f"{len(texts)}.parquet"
    if not path.exists():
        pq.write_table(pa.Table.from_batches([batch(texts)]), path, compression="zstd", row_group_size=5000)
    return path


def shingles(text: str) -> set[bytes]:
    words = WORD.findall(text.lower())
    return {" ".join(words[i : i + 5]).encode() for i in range(max(1, len(words) - 4))}


def datasketch_signature(text: str, hashfunc: Callable[[bytes], int] | None = None, num_perm: int = PARAMS.num_perm) -> datasketch.MinHash:
    sketch = datasketch.MinHash(num_perm=num_perm, hashfunc=hashfunc)
    sketch.update_batch(shingles(text))
    return sketch


def ours_end_to_end(path: Path) -> set[int]:
    decisions = deduplicate(batches := list(pq.ParquetFile(path).iter_batches(5000, columns=["id", "text"])), [0] * len(batches), PARAMS)
    return set(np.flatnonzero(~decisions["keep"].to_numpy()).tolist())


def datasketch_end_to_end(path: Path, bands: tuple[int, int] | None) -> set[int]:
    """The loop of datasketch's documentation: query, drop what finds a neighbour, insert the rest."""
    num_perm = bands[0] * bands[1] if bands else 128
    index, removed = datasketch.MinHashLSH(threshold=0.8, num_perm=num_perm, params=bands), set()
    for i, text in enumerate(pq.read_table(path)["text"].to_pylist()):
        sketch = datasketch_signature(text, xxhash.xxh32_intdigest, num_perm)
        if index.query(sketch):
            removed.add(i)
        else:
            index.insert(i, sketch)
    return removed


def rensa_end_to_end(path: Path) -> set[int]:
    import rensa

    index, removed = rensa.RMinHashLSH(threshold=0.8, num_perm=PARAMS.num_perm, num_bands=PARAMS.bands), set()
    for i, text in enumerate(pq.read_table(path)["text"].to_pylist()):
        sketch = rensa.RMinHash(num_perm=PARAMS.num_perm, seed=1)
        sketch.update([shingle.decode() for shingle in shingles(text)])
        if index.query(sketch):
            removed.add(i)
        else:
            index.insert(i, sketch)
    return removed


def datatrove_signatures(texts: Texts) -> Callable[[], object]:
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
    from datatrove.utils.hashing import HashConfig

    # sha1, because datatrove 0.10 hands strings to xxhash, which xxhash 4 refuses; the tokenizer takes most of the time.
    config = MinhashConfig(n_grams=5, num_buckets=PARAMS.bands, hashes_per_bucket=PARAMS.rows, hash_config=HashConfig(hash_fc="sha1"))
    stage = MinhashDedupSignature("unused", config=config)
    stage.get_shingles("loads the tokenizer, which is not what is measured")
    return lambda: [stage.get_signature(found) for text in texts if len(found := stage.get_shingles(text))]


def rensa_signatures(texts: Texts) -> None:
    import rensa

    for text in texts:
        rensa.RMinHash(num_perm=PARAMS.num_perm, seed=1).update([shingle.decode() for shingle in shingles(text)])


def importable(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def signature_contenders(texts: Texts) -> dict[str, tuple[float, Callable[[], object]]]:
    """What runs, and the MB that it reads, by name. All with 256 permutations of word 5-grams."""
    whole, some, few = batch(texts), sample(texts, PEER_MEGABYTES), sample(texts, SLOW_MEGABYTES)
    contenders: dict[str, tuple[float, Callable[[], object]]] = {
        "groundwork": (megabytes(texts), lambda: signatures(whole, PARAMS)),
        "datasketch batch, sha1": (megabytes(few), lambda: [datasketch_signature(text) for text in few]),
        "datasketch batch, xxh32": (megabytes(some), lambda: [datasketch_signature(text, xxhash.xxh32_intdigest) for text in some]),
    }
    if importable("rensa"):
        contenders["rensa"] = megabytes(some), lambda: rensa_signatures(some)
    if importable("datatrove", "spacy"):
        contenders["datatrove, sha1"] = megabytes(few), datatrove_signatures(few)
    return contenders


def end_to_end_contenders(texts: Texts, folder: Path) -> dict[str, tuple[float, Callable[[], object]]]:
    """Parquet to the documents to remove."""
    whole, some = parquet(texts, folder), parquet(few := sample(texts, PEER_MEGABYTES), folder)
    contenders: dict[str, tuple[float, Callable[[], object]]] = {
        "groundwork, verified": (megabytes(texts), lambda: ours_end_to_end(whole)),
        "datasketch LSH loop, 32x8": (megabytes(few), lambda: datasketch_end_to_end(some, (PARAMS.bands, PARAMS.rows))),
    }
    if importable("rensa"):
        contenders["rensa LSH loop, 32 bands"] = megabytes(few), lambda: rensa_end_to_end(some)
    return contenders


def megabytes(texts: Texts) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def measure(contenders: dict[str, tuple[float, Callable[[], object]]]) -> dict[str, dict[str, float]]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for run in range(REPEATS + 1):
        for name, (_, call) in contenders.items():
            started = time.perf_counter()
            call()
            if run:
                seconds[name].append(time.perf_counter() - started)
    return {name: {"mb": round(size, 1), "mb_per_s": round(size / statistics.median(seconds[name]), 2)} for name, (size, _) in contenders.items()}


def similar_pairs(sets: ShingleSets, threshold: float) -> dict[int, set[int]]:
    """All pairs of exact Jaccard >= threshold, without LSH: two such sets share one of their rarest (1 - threshold) |A| + 1 members."""
    rows = [sets.hashes[start:end] for start, end in zip(sets.offsets[:-1], sets.offsets[1:], strict=True)]
    _, inverse, counts = np.unique(sets.hashes, return_inverse=True, return_counts=True)
    frequency = counts[inverse]
    index: dict[int, list[int]] = defaultdict(list)
    similar: dict[int, set[int]] = defaultdict(set)
    for i, row in enumerate(rows):
        rarest = np.lexsort((row, frequency[sets.offsets[i] : sets.offsets[i + 1]]))[: int((1 - threshold) * len(row) + 1e-9) + 1]
        met = {other for value in row[rarest].tolist() for other in index[value]}
        for other in met:
            if jaccard(rows[other], row) >= threshold:
                similar[i].add(other)
                similar[other].add(i)
        for value in row[rarest].tolist():
            index[value].append(i)
    return similar


def quality(texts: Texts, folder: Path) -> dict[str, dict[str, float]]:
    """Against all exact pairs: precision is the share of removals with a similar document kept, recall that of removable documents removed."""
    similar = similar_pairs(shingle_sets(batch(texts), PARAMS), PARAMS.threshold)
    path = parquet(texts, folder)
    removals = {
        "groundwork": ours_end_to_end(path),
        "datasketch LSH loop, 32x8": datasketch_end_to_end(path, (PARAMS.bands, PARAMS.rows)),
        "datasketch LSH loop, threshold=0.8": datasketch_end_to_end(path, None),
    }
    if importable("rensa"):
        removals["rensa LSH loop, 32 bands"] = rensa_end_to_end(path)
    return {name: scores(removed, similar) for name, removed in removals.items()}


def scores(removed: set[int], similar: dict[int, set[int]]) -> dict[str, float]:
    right = sum(bool(similar[i] - removed) for i in removed)
    kept: set[int] = set()
    for i in sorted(similar):
        if i not in removed and not similar[i] & kept:
            kept.add(i)
    missed = sum(i not in removed and i not in kept for i in similar)
    return {"removed": len(removed), "precision": round(right / len(removed), 4), "recall": round(right / (right + missed), 4)}


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1] if named else platform.processor() or platform.machine()


def main() -> None:
    pa.set_cpu_count(1)
    texts = corpus()
    with tempfile.TemporaryDirectory() as folder:
        report = {
            "date": datetime.date.today().isoformat(),
            "machine": f"{processor()}, one core, Python {platform.python_version()}",
            "versions": {name: version(name) for name in ("numba", "pyarrow", "datasketch", "rensa", "datatrove") if importable(name)},
            "corpus": {"documents": len(texts), "mb": round(megabytes(texts), 1)},
            "params": PARAMS.model_dump(),
            "signatures": measure(signature_contenders(texts)),
            "end_to_end": measure(end_to_end_contenders(texts, Path(folder))),
            "quality": quality(sample(texts, 3 * PEER_MEGABYTES), Path(folder)),
        }
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
