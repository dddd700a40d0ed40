"""Where a document lies in the token shards, of a corpus of many parts."""

from pathlib import Path

from tokenizers import Tokenizer

from pipeline.sources.files import FilesConfig
from pipeline.steps.lineage import record
from pipeline.steps.lineage.documents import CorpusText
from pipeline.steps.tokens.shards import prefixes
from pipeline.store import keys
from pipeline.store.parquet import read_table
from pipeline.store.store import Store
from tests.pipeline.steps.corpora import ENGINE, TEXTS
from tests.pipeline.steps.make import up_to_quality
from tests.pipeline.steps.training.test_plan import make_shards, recipe
from tests.rows import jsonl
from trainer.data.shards import Shard, TokenStream


def test_the_place_of_each_document_holds_its_text(tmp_path: Path) -> None:
    store, found = Store(tmp_path / "store"), recipe("first")
    jsonl(tmp_path / "first.jsonl", *({"text": text} for text in TEXTS))
    source = FilesConfig(paths=("first.jsonl",)).anchored(tmp_path)
    up_to_quality(store, ENGINE, "first", source, 20_000)
    make_shards(store, found)
    shards, scrubbed = store.current(keys.token_shards("first")), store.current(keys.scrubbed("first"))
    assert len(scrubbed.parts) > 3
    text = CorpusText(store, record.of_recipe(store, found)["assets"], "first")
    tokenizer = Tokenizer.from_file(str(store.current(keys.TOKENIZER).directory() / "tokenizer.json"))
    texts = {
        row["id"]: row["text"]
        for file in scrubbed.files("documents")
        for row in read_table(file, columns=["id", "text"]).to_pylist()
    }
    stream = TokenStream(prefixes(shards, keys.TRAIN))
    trained = {held.document: (held.begin, held.end) for held in text.between(0, stream.num_tokens)}
    for document, (begin, end) in trained.items():
        tokens = stream.window(begin, end - begin)[1:-1].tolist()
        assert tokenizer.decode(tokens, skip_special_tokens=False) == texts[document]
    fates = text.fates(text.holding(texts))
    assert fates.keys() == texts.keys()
    assert {document for document, fate in fates.items() if fate == "in the training text"} == {*trained}
    held_out = [document for document, fate in fates.items() if fate == "held out for validation"]
    assert len(held_out) == sum(Shard(one).num_documents for one in prefixes(shards, keys.VALIDATION)) > 0
    for document in trained:
        assert [*text.ranges(text.holding([document]))] == [trained[document]]
