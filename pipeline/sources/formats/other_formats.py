"""What to do with a file whose name says that it is none that is read."""

_TO_TEXT = "write its text into a text file"
_TABLE, _COLUMNS = "save it as .csv", "write it as .parquet"
_ARCHIVE, _PACKED = "unpack it", "unpack it, or compress it with gzip or zstd"
_DOCUMENT = "save it as .docx or .odt (`soffice --convert-to docx`)"
XML = (
    "XML, whose tags would be learned: write its texts as JSON lines, those of a dump of MediaWiki with "
    "`wikiextractor --json -o - DUMP > wiki.jsonl`"
)
_NO_TEXT = "it holds no text"
_REMEDIES = {
    _ARCHIVE: ".zip .tar .tgz .tbz2 .txz .7z .rar .cab .iso .jar",
    _PACKED: ".lz4 .lzma .lz .z .br .sz .snappy",
    _DOCUMENT: ".doc .dot .wpd .wps .pages .sxw",
    f"{_TO_TEXT} (`pdftotext`)": ".pdf",
    f"{_TO_TEXT} (`soffice --convert-to pdf`, then `pdftotext`)": ".ppt .ps .djvu",
    _TABLE: ".xls .xlsx .xlsm .ods .numbers .db .sqlite .sqlite3 .mdb .dta .sav",
    _COLUMNS: ".arrow .feather .orc .avro .pkl .pickle .npy .npz .h5 .hdf5 .tfrecord .lmdb",
    "convert it to .epub (`ebook-convert`)": ".mobi .azw .azw3 .fb2 .lit .prc",
    "convert it to .srt": ".ass .ssa .sbv .sub .ttml .dfxp",
    "read it with `kind: warc`": ".warc .wet .arc",
    "save its messages as .mbox or .eml": ".pst .ost .msg .dbx .emlx",
    _NO_TEXT: (
        ".png .jpg .jpeg .gif .webp .heic .svg .ico .psd .tif .tiff .bmp .mp3 .m4a .ogg .opus .wav .flac "
        ".mp4 .mkv .avi .mov .webm .ttf .otf .woff .woff2 .exe .dll .so .pyc .class .o"
    ),
    XML: ".xml .sgml .sgm .tei .nxml .jats",
}
_BY_SUFFIX = {suffix: remedy for remedy, suffixes in _REMEDIES.items() for suffix in suffixes.split()}


def remedy(suffix: str) -> str | None:
    """What to do with a file whose name ends in `suffix`; None if the suffix says nothing."""
    return _BY_SUFFIX.get(suffix.lower())
