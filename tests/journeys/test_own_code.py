"""docs/your-own-code.md: a source, a transform and a filter of a person's own, and another's tokenizer."""

import json
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from tokenizers import ByteLevelBPETokenizer

from tests.integration.project import TRAINING, Project
from trainer.data.shards import Shard

pytestmark = pytest.mark.slow
CODE = """
import json
from pathlib import Path

from pipeline.plugins import Document, document_filter, document_transform


class Rows:
    def __init__(self, path):
        self.path = Path(path)

    def fingerprint(self):
        return str(self.path.stat().st_mtime_ns)

    def documents(self):
        for name, text in json.loads(self.path.read_text()).items():
            yield Document(name, text)


@document_transform
def without_banners(document):
    return document.text.replace("BANNER ", "")


@document_filter
def is_about(document, word):
    return word in document.text, "off topic"
"""


def test_own_code_makes_the_corpus_that_another_programs_tokenizer_encodes(tmp_path: Path) -> None:
    texts = {name: f"BANNER {text}" for name, text in topics.items()}
    (tmp_path / "rows.json").write_text(json.dumps(texts))
    (tmp_path / "mine_of_a_person.py").write_text(CODE)
    theirs = ByteLevelBPETokenizer()
    theirs.train_from_iterator(topics.values(), vocab_size=400, special_tokens=["<s>", "</s>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    ends = {"begin_of_text": "<s>", "end_of_text": "</s>"}
    of_mine = {"version": "1"}
    rows = {
        "kind": "python",
        "object": "mine_of_a_person:Rows",
        "params": {"path": str(tmp_path / "rows.json")},
    }
    about = {"python": "mine_of_a_person:is_about", "params": {"word": "object"}}
    recipe = {
        "name": "own",
        "corpora": [{"name": "rows", "source": rows | of_mine}],
        "transforms": [{"python": "mine_of_a_person:without_banners"} | of_mine],
        "quality": {"profile": "none", "filters": [about | of_mine]},
        "tokenizer": {"from": "tokenizer.json"} | ends,
        "training": TRAINING,
    }
    project = Project(tmp_path, recipe)
    project.make(job="retokenize")
    project.command("export", "--format=megatron", "-o=out")
    shards = [Shard(path.with_suffix("")) for path in (tmp_path / "out").rglob("*.idx")]
    kept = [shard.document(number) for shard in shards for number in range(shard.num_documents)]
    assert all((ids[0], ids[-1]) == (0, 1) for ids in kept)
    written = [theirs.decode(ids[1:-1].tolist()) for ids in kept]
    assert all("object" in text and "BANNER" not in text for text in written)
    wanted = sum("object" in text for text in topics.values())
    assert 0.9 * wanted < len(written) <= wanted < len(topics)  # dedup takes the others
    assert f"is_about {len(topics) - wanted}" in " ".join(project.command("inspect").split())
