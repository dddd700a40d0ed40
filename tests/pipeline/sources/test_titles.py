"""What people call a document, where its source says."""

import json

import pytest

from pipeline.sources.documents import title


@pytest.mark.parametrize(
    ("metadata", "url", "called"),
    [
        ({"title": "Programmable logic controller"}, "https://a.example", "Programmable logic controller"),
        ({"Title": "In capitals"}, None, "In capitals"),
        ({"name": "report.pdf", "title": " "}, None, "report.pdf"),
        ({"title": 7}, "https://a.example", "https://a.example"),
        ({}, None, None),
    ],
)
def test_a_document_is_called_by_its_title_else_by_its_address(
    metadata: dict[str, object], url: str | None, called: str | None
) -> None:
    assert title(json.dumps(metadata), url) == called
    assert title(None, url) == url
