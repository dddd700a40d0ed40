"""The user's files, by path or glob: rows, text, HTML, mail, books, notebooks, programs, also compressed."""

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal

import pyarrow as pa
from pydantic import Field, field_validator

from pipeline.sources.documents import MAX_DOCUMENT_BYTES, Batches
from pipeline.sources.file_by_file import read_files, units_of
from pipeline.sources.formats.arrow_rows import read_parquet
from pipeline.sources.formats.compression import CODECS, format_of
from pipeline.sources.formats.conversations import forms_of
from pipeline.sources.formats.csv_rows import read_csv
from pipeline.sources.formats.docx import paragraphs, slides
from pipeline.sources.formats.epub import chapters
from pipeline.sources.formats.first_bytes import (
    RTF_BEGINS,
    ZIP,
    is_one_a_line,
    not_text,
    other_encoding,
    rows_in_an_object,
)
from pipeline.sources.formats.json_values import read_json_values
from pipeline.sources.formats.jsonl import read_jsonl
from pipeline.sources.formats.mail import read_mail
from pipeline.sources.formats.notebooks import notebook_text
from pipeline.sources.formats.odt import flat_text, odt_text
from pipeline.sources.formats.other_formats import remedy
from pipeline.sources.formats.rows import Columns, RowReader
from pipeline.sources.formats.rtf import rtf_text
from pipeline.sources.formats.streams import ahead, as_utf8, blocks, reads_text
from pipeline.sources.formats.subtitles import MAX_SUBTITLES_BYTES, subtitles_text
from pipeline.sources.formats.text_files import read_text, read_whole
from pipeline.sources.formats.zipped import MAX_PACKED_BYTES, Archive, document_text
from pipeline.sources.listing import Files, Paths, listed
from pipeline.sources.source import Reason, Rejects, Unit
from pipeline.sources.source_file import Hash, SourceFile, size_of
from pipeline.sources.web.pages import MAX_PAGE_BYTES, page_text
from pipeline.store.fingerprint import file_sha256

# Of the languages in common use, by suffix.
_OF_PROGRAMS = """
    .py .pyi .pyw .pyx .c .h .cc .cpp .cxx .hh .hpp .hxx .ino .m .mm .cu .cuh .cs .csx .vb .fs .fsi .fsx
    .java .kt .kts .scala .sc .sbt .groovy .gradle .clj .cljs .cljc .swift .go .rs .zig .nim .d .dart .v .sv
    .js .mjs .cjs .jsx .ts .mts .cts .tsx .vue .svelte .astro .coffee .elm .css .scss .sass .less .php .phtml
    .rb .rake .erb .pl .pm .t .lua .tcl .awk .sh .bash .zsh .fish .ps1 .psm1 .bat .cmd .sql .r .jl .hs .lhs
    .ml .mli .ex .exs .erl .hrl .lisp .lsp .el .scm .rkt .f .for .f90 .f95 .f03 .f08 .pas .pp .adb .ads .cob
    .cbl .asm .s .vhd .vhdl .sol .proto .graphql .gql .thrift .cmake .mk .tf .nix .glsl .hlsl .wgsl .gd .hx
"""
PROGRAMS = tuple(_OF_PROGRAMS.split())
MARKUP = (".md", ".markdown", ".mdown", ".mkd", ".mdx", ".rmd", ".qmd", ".rst", ".adoc", ".asciidoc", ".org")
TEXT = (".txt", ".text", *MARKUP, ".tex", ".textile", ".typ", ".wiki", ".mediawiki", ".pod", *PROGRAMS)
SUBTITLES = (".srt", ".vtt")
MAIL, MAILBOX = ".eml", ".mbox"
PAGES = (".html", ".htm", ".xhtml")
NOTEBOOK = ".ipynb"
WORD, SLIDES = (".docx", ".docm", ".dotx"), (".pptx", ".pptm", ".ppsx")
FLAT, RTF = ".fodt", ".rtf"
OF_ONE_FILE = {FLAT: flat_text, RTF: rtf_text}
OPEN_DOCUMENT = (".odt", ".ott", ".odp", ".otp")
ZIPPED = {
    ".epub": chapters,
    **dict.fromkeys(WORD, paragraphs),
    **dict.fromkeys(SLIDES, slides),
    **dict.fromkeys(OPEN_DOCUMENT, odt_text),
}
READ_AS_A_WHOLE = (NOTEBOOK, *OF_ONE_FILE, *ZIPPED)  # whose first bytes alone say nothing
ENCODED_BY_THEMSELVES = (MAIL, MAILBOX, *PAGES, *READ_AS_A_WHOLE)
PROSE = (*TEXT, *SUBTITLES, *ENCODED_BY_THEMSELVES)  # which holds no rows with columns
JSON_LINES = (".jsonl", ".json", ".ndjson")
SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (*JSON_LINES, ".parquet", *SEPARATORS, *PROSE)
LEAST_PIECE = 1 << 10
MAX_SEPARATOR = 1000  # characters; far fewer than in a block that is read at a time


class FilesConfig(Columns, Paths):
    """Your own files, on this machine or behind URLs, in any mix of formats: JSON, Parquet, CSV, plain text,
    Markdown and other markup, subtitles, HTML, mail, EPUB, Word (`.docx`), PowerPoint (`.pptx`), OpenDocument
    (`.odt`, `.odp`, `.fodt`), RTF, notebooks (`.ipynb`), and programs. All but Parquet may be compressed.
    JSON is one object in each line, as `.jsonl` has it, or an array, or objects over several lines. From a
    page of HTML, the main text is read; from mail (`.eml`, `.mbox`) the usual headers and the text, without
    attachments; from subtitles (`.srt`, `.vtt`) the spoken text, without the times; from a book all pages in
    their order, without the table of contents; from documents and slides the paragraphs, tables and notes;
    from RTF the text without the notes; from a notebook text and code, as Markdown, without the output of the
    code. HTML and EPUB need the extra `web`.

    In a damaged compressed file, everything after the last valid checksum (of a gzip member, zstd frame, xz
    stream or bzip2 block) is left out, and its bytes count as lost. From a truncated file, everything that
    unpacks is read. zstd frames without a checksum (the command `zstd` writes one, most libraries do not)
    hide damage: in such frames only invalid UTF-8 and broken rows are noticed. Members of more than 16 MB are
    unpacked twice, and downloaded twice if the file is remote.
    """

    kind: Literal["files"] = "files"
    """Selects this source."""
    encoding: str = "utf-8"
    """Character encoding of JSON lines, CSV and text files, by any name that Python knows. Parquet files are
    not affected.
    """

    separator: str | None = Field(None, min_length=1, max_length=1)
    """The character between the fields of a CSV file. When not set, a comma, and in `.tsv` files a tab. In
    files separated by tabs or `|`, quotes are ordinary characters if the file's first lines show that. A
    backslash before a quote within quotes, as Spark and MySQL write it, is recognized, too.
    """
    piece_bytes: int | None = Field(None, ge=LEAST_PIECE, le=MAX_DOCUMENT_BYTES)
    """Cuts plain text and Markdown into documents of at most so many bytes, at blank lines if possible. When
    not set, a file is one document, of at most 64 MiB. Set it, to 65_536 for example, for one large file: as
    a single document it could not be divided into training and held-out text.
    """
    document_separator: str | None = Field(None, min_length=1, max_length=MAX_SEPARATOR)
    r"""What stands between two documents of a file of plain text or Markdown: "<|endoftext|>", or "\n" where
    each line is a document, or "\n\n" where blank lines divide them. It belongs to no document. Not set, the
    file is not divided by its content.
    """

    @field_validator("separator")
    @classmethod
    def _separates(cls, separator: str | None) -> str | None:
        if separator in ('"', "\r", "\n"):
            raise ValueError(f"{separator!r} cannot separate fields; write for example ';'")
        return separator

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        try:
            found = codecs.lookup(encoding)
        except LookupError as error:
            raise ValueError(f"{encoding!r} is not an encoding that Python knows") from error
        if not reads_text(found):
            raise ValueError(f"{encoding!r} is not an encoding of text files; write for example utf-16")
        return found.name


@dataclass(frozen=True)
class FilesSource:
    """One unit per file, or one for all with `max_documents`. `keep_ids` is for files that are read without
    other corpora. `row_reader` takes the rows of each file.
    """

    corpus: str
    config: FilesConfig
    keep_ids: bool = False
    sha256: Hash = file_sha256
    row_reader: Callable[..., RowReader] = RowReader

    @property
    def version(self) -> str:
        return f"files-13{self.config.version}"

    def units(self) -> list[Unit]:
        return units_of(self._listed(), self.config.max_documents, self.sha256)

    def read(self, unit: Unit, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        return self._read(unit.files, rejects)

    def read_all(self, rejects: Rejects) -> Iterator[pa.RecordBatch]:
        """All files as one unit, by name. A second document with an id is rejected, whatever its file."""
        return self._read(self._listed().items(), rejects)

    def _read(self, files: Iterable[tuple[str, SourceFile]], rejects: Rejects) -> Iterator[pa.RecordBatch]:
        batches = Batches(self.corpus, rejects, self.config.max_documents, self.keep_ids)
        return read_files(files, batches, partial(self._documents, batches))

    def _documents(self, batches: Batches, name: str, file: SourceFile) -> Iterator[pa.RecordBatch]:
        plain, compression = format_of(name)
        reject = partial(batches.reject, name, None)
        file.check()
        if file.directory:
            why = f"a directory; to read what is in it, write {name}/**/*.jsonl or the like"
            reject(Reason.IS_A_DIRECTORY, why)
        elif file.size() == 0:
            reject(Reason.EMPTY_FILE, "the file is empty")
        elif plain in PROSE and self.config.format not in ("text", "chat" if plain in TEXT else ""):
            why = f"plain text, which holds no rows with {forms_of(self.config.format)}"
            reject(Reason.UNSUPPORTED_FORMAT, why, size_of(file))
        elif (plain, compression) == (".parquet", ""):
            yield from read_parquet(file, self.row_reader(name, self.config, batches, bytes=size_of(file)))
        elif plain in (*JSON_LINES, *SEPARATORS, *PROSE):
            reader = self.row_reader(name, self.config, batches, bytes=size_of(file))
            yield from self._read_text_format(plain, blocks(file, compression), reader)
        else:
            named = ", ".join(suffix for suffix in FORMATS if suffix not in PROGRAMS)
            known = f"none of {named}, and no program (all but .parquet also {', '.join(CODECS)})"
            why = f"{remedy(plain) or 'if it is plain text, name it .txt'}; it is {known}"
            reject(Reason.UNSUPPORTED_FORMAT, why, size_of(file))

    def _read_text_format(
        self, plain: str, content: Iterator[bytes], reader: RowReader
    ) -> Iterator[pa.RecordBatch]:
        config, start = self.config, next(content, b"")
        if not start and next(content, None) is None:
            reader.reject(None, Reason.EMPTY_FILE, "the file is empty once it is unpacked")
            return
        found = other_encoding(start) if plain in ENCODED_BY_THEMSELVES else ""
        encoding = found or config.encoding
        as_named = start.startswith(ZIP) if plain in ZIPPED else plain == RTF and start.startswith(RTF_BEGINS)
        refused = None if as_named else not_text(start, reader.file, encoding)
        content = chain([start], content)
        read = partial(read_whole, content, reader, config.piece_bytes)
        if refused:
            reader.reject(None, *refused, reader.bytes)
        elif plain in ZIPPED:
            texts = ZIPPED[plain]
            yield from read(partial(document_text, lambda file: texts(Archive(file))), most=MAX_PACKED_BYTES)
        elif plain in OF_ONE_FILE:
            yield from read(partial(document_text, OF_ONE_FILE[plain]), most=MAX_PACKED_BYTES)
        elif plain == NOTEBOOK:
            yield from read(notebook_text, most=MAX_DOCUMENT_BYTES)
        elif plain in (MAIL, MAILBOX):
            yield from read_mail(content, reader, encoding, mailbox=plain == MAILBOX)
        elif plain in PAGES:
            text_of = partial(page_text, encoding=encoding)
            yield from read(text_of, most=MAX_PAGE_BYTES, what="bytes of HTML", row=1)
        else:
            yield from self._read_text(plain, as_utf8(content, encoding), reader)

    def _read_text(self, plain: str, text: Iterator[bytes], reader: RowReader) -> Iterator[pa.RecordBatch]:
        """The documents of `text`, which is UTF-8."""
        config = self.config
        if plain in SEPARATORS:
            yield from read_csv(text, reader, config.separator or SEPARATORS[plain])
        elif plain in JSON_LINES:
            found, text = ahead(text, 2)
            start = found[0] if found else b""
            if is_one_a_line(start, whole=len(found) < 2):
                yield from read_jsonl(text, reader)
            elif refused := rows_in_an_object(start):
                reader.reject(None, *refused, reader.bytes)
            else:
                yield from read_json_values(text, reader)
        elif plain in SUBTITLES:
            most, what = MAX_SUBTITLES_BYTES, "bytes of subtitles"
            yield from read_whole(text, reader, config.piece_bytes, subtitles_text, most=most, what=what)
        else:
            yield from read_text(text, reader, config.piece_bytes, config.document_separator)

    def _listed(self) -> Files:
        return listed(self.corpus, self.config.patterns(), lambda name: format_of(name)[0] in FORMATS)
