"""Mutants that no test can notice, by file and mutated line, and why."""

from tests.mutants.mutants import Mutant

FASTER = "changes only how long it takes"
SHOWN = "changes only how something looks"
TIE = "differs only where two measured numbers are equal"
ROUGH = "a rough limit"
ONE_MORE = "one more than a limit of thousands"

EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "pipeline/sources/formats/text_files.py",
        "if found >= 1:",
    ): "half of a window is never 0, and nothing is found before it",
    (
        "pipeline/stages/quality/c4.py",
        "if words.starts[word] <= uncited:",
    ): "no word begins where another ends",
    (
        "pipeline/stages/quality/repetition.py",
        "seen[table.ids[i]] = 2",
    ): "any number but 0 says that it was seen",
    (
        "pipeline/stages/bpe/counts.py",
        "rows[row, HASH] == hashed or _is_word(words, starts, rows[row, WORD], data, i, end)",
    ): "differs only where two words have the same hash of 64 bits",
    ("pipeline/sources/formats/csv_rows.py", "if self._row <= MAX_DOCUMENT_BYTES:"): ROUGH,
    ("pipeline/sources/formats/jsonl.py", "begun, size = list[bytes](), 1"): ROUGH,
    ("pipeline/steps/compile_ahead.py", "pass"): FASTER,
    ("pipeline/assets/pretrained_model.py", '"hours": round(effort.hours, 4),'): SHOWN,
    ("pipeline/store/parts.py", "slower: int = 2,"): FASTER,
    (
        "pipeline/steps/plain_files.py",
        'task = PartTask(PART, "", tuple(stored.files("documents")), 1)',
    ): "the bytes of a task say only how to share out several",
    (
        "trainer/data/packing/packed_rows.py",
        "'ends.i64_': np.dtype(\"<i8\"),",
    ): "names a file that nothing else reads",
    ("trainer/data/loader.py", "name: round(windows.padding, 7)"): SHOWN,
    ("pipeline/reports/dedup.py", "pass"): SHOWN,
    ("pipeline/reports/runs_table.py", "pass"): SHOWN,
    ("pipeline/steps/stages.py", "numbers={'contaminated_': decontamination.REASON},"): SHOWN,
    ("pipeline/assets/mixture_search.py", "'law_': mixture_search.verdict(result),"): SHOWN,
    (
        "pipeline/steps/mixture_search/law.py",
        'settings |= {"num_threads": 1, "deterministic": True, \'seed_\': 0, "verbosity": -1}',
    ): "trees that draw no samples use no seed",
    ("trainer/system/gpus.py", '"h200": _gpu("H200", 990, 141, 3.50),'): ROUGH,
    ("trainer/optim/muon.py", "return 2 * short * short // long + short**3"): FASTER,
    (
        "trainer/optim/state.py",
        'stays = slot != "step" and not owners[parameter].defaults.get("fused")',
    ): "differs only on a GPU",
    (
        "trainer/tools/planner/plan.py",
        'textwrap.fill(text, 100, initial_indent=f"{name:<10}", subsequent_indent=" " * 11)',
    ): SHOWN,
    ("trainer/run/fit/preflight.py", "if seconds >= SLOW_SECONDS:"): TIE,
    ("pipeline/assets/trainer_process.py", "if now > self._catch_up_at:"): TIE,
    ("pipeline/steps/tokens/tokenizer_fit.py", "if size > SAMPLE_BYTES:"): TIE,
    ("trainer/run/fit/memory.py", "AMPLE = 11"): ROUGH,
    (
        "pipeline/stages/quality/walk.py",
        "return _NEWLINE, 2, SPACE | BREAK",
    ): "the walk ends there, however far it would go on",
    ("pipeline/stages/pii/plain.py", "return 1, 0"): "an end of 0 says that there is no character",
    (
        "trainer/run/fit/preflight.py",
        "for shard in shards[:: -len(shards) // SAMPLED_SHARDS]:",
    ): "samples as many shards, from the last one",
}


def why_same(mutant: Mutant) -> str | None:
    """Why no test can notice a mutant; None if one could."""
    if mutant.text.isdecimal() and int(mutant.text) > 1000:
        return ONE_MORE
    return EQUIVALENT.get((mutant.file, mutant.after))
