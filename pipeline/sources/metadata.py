"""A document's metadata as JSON of bounded size."""

import orjson

METADATA_BYTES = 4096


def metadata_json(values: dict[str, object]) -> str | None:
    """The values as JSON of at most about METADATA_BYTES; None for no values.

    `left_out` counts the values that did not fit or are nested too deeply. Values of types that JSON lacks
    (dates, decimals) are written as text.
    """
    if not values:
        return None
    encoded = _encoded(values)
    if encoded is None or len(encoded) > METADATA_BYTES:
        encoded = _encoded(_fitting(values)) or b""
    return encoded.decode()


def _encoded(values: dict[str, object]) -> bytes | None:
    """None for values nested more deeply than orjson encodes, although it decodes them."""
    try:
        return orjson.dumps(values, default=_as_text)
    except TypeError:
        return None


def _as_text(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


def _fitting(values: dict[str, object]) -> dict[str, object]:
    fitting: dict[str, object] = {}
    left = METADATA_BYTES
    for name, value in values.items():
        encoded = _encoded({name: value})
        if encoded is not None and len(encoded) <= left:
            fitting[name] = value
            left -= len(encoded)
    return {**fitting, "left_out": len(values) - len(fitting)}
