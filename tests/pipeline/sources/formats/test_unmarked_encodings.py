"""Text in wide or seven-bit encodings without a mark."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.formats.first_bytes import other_encoding
from tests.pipeline.sources.formats.test_first_bytes import CONTENT, only_reject
from tests.pipeline.sources.reading import documents_and_rejects


@pytest.mark.parametrize("kind", CONTENT)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_wide_encoding_is_named_and_read_once_it_is_set(tmp_path: Path, encoding: str, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(CONTENT[kind].encode(encoding))
    assert f"set `encoding: {encoding}`" in only_reject(path)
    rows, rejects = documents_and_rejects(path, encoding=encoding)
    assert rejects == []
    assert "€" in rows[-1]["text"]


ALPHABETS = {
    "Russian": "Привет, это обычный русский текст. ",
    "Greek": "Αθήνα είναι η πρωτεύουσα της χώρας. ",
    "Arabic": "القاهرة هي عاصمة مصر وفيها سكان كثيرون. ",
    "Hebrew": "ירושלים היא בירה ויש בה תושבים רבים. ",
    "Thai": "กรุงเทพเป็นเมืองหลวงของประเทศไทย ",
    "English": "A plain sentence about the weather. ",
}


@pytest.mark.parametrize("language", ALPHABETS)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_an_alphabet_in_a_wide_encoding_without_a_mark_is_never_published_as_it_stands(
    tmp_path: Path, encoding: str, language: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes((ALPHABETS[language] * 5).encode(encoding))
    assert f"set `encoding: {encoding}`" in only_reject(path)


@pytest.mark.parametrize(
    ("encoding", "text"), [("iso2022_jp", "これは日本語です。\n"), ("iso2022_kr", "한국어\n")]
)
def test_japanese_or_korean_of_seven_bits_is_named(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    assert f"set `encoding: {encoding}`" in only_reject(path)
    rows, _ = documents_and_rejects(path, encoding=encoding)
    assert text.strip() in rows[0]["text"]


@pytest.mark.parametrize(
    "text", ["1\n2\n3\n4\n5\n", "a\tb\tc\td\te\t", "\n\n\n\na\n\n\n\n", "\x1b[1mbold\x1b[0m $B"]
)
def test_short_lines_and_marks_of_terminals_are_plain_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    rows, rejects = documents_and_rejects(tmp_path / "a.txt")
    assert rejects == [] and len(rows) == 1


@pytest.mark.parametrize("text", ["a\0b\0cdefg", "ab c\0d\0e f", "\0a\0bcdefg", "1\0\0002\0003 4\0005 6"])
def test_a_few_zeros_in_a_short_text_do_not_make_it_utf16(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    rows, rejects = documents_and_rejects(tmp_path / "a.txt")
    assert rejects == [] and [row["text"] for row in rows] == [text]


CYRILLIC = "".join(map(chr, range(0x410, 0x450)))


EAST_ASIAN = {
    "Chinese": "红楼梦第一回甄士隐梦幻识通灵贾雨村风尘怀闺秀。此开卷第一回也。作者自云曾历过一番梦幻之后。\n",
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n",
    "Korean": "나는 고양이로소이다. 이름은 아직 없다. 어디서 태어났는지 도무지 짐작이 가지 않는다.\n",
}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", list(EAST_ASIAN.values()), ids=list(EAST_ASIAN))
@pytest.mark.parametrize("times", [1, 3, 5000])
def test_east_asian_text_in_utf16_without_a_mark_is_named_with_what_to_set(
    tmp_path: Path, text: str, encoding: str, times: int
) -> None:
    (tmp_path / "a.txt").write_bytes((text * times).encode(encoding))
    _, [reject] = documents_and_rejects(tmp_path / "a.txt")
    assert reject.detail == f"the file is in {encoding.upper()}: set `encoding: {encoding}`"
    [row], _ = documents_and_rejects(tmp_path / "a.txt", encoding=encoding)
    assert row["text"] == text * times


@given(
    st.sampled_from(
        ["gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "cp1251", "koi8-r", "cp1252", "cp949"]
    ),
    st.lists(
        st.sampled_from([*EAST_ASIAN.values(), CYRILLIC, CYRILLIC[:32], "Größe", "aGVsbG8gd29ybGQ"]),
        min_size=1,
    ),
    st.booleans(),
)
def test_no_text_in_another_encoding_is_taken_for_utf16(encoding: str, texts: list[str], odd: bool) -> None:
    assert other_encoding(b"x" * odd + "\n".join(texts).encode(encoding, "ignore")) == ""
