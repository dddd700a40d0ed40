"""The example beside each layout has the layout that the name stands for."""

import re
from pathlib import Path

from pipeline.stages.pii import group_widths

CODE = r"^ *(?:[A-Z_0-9]+ = )?(\d+)\b"


def test_every_layout_has_an_example_with_its_groups() -> None:
    source = Path(group_widths.__file__).read_text(encoding="utf-8")
    codes = re.findall(CODE, source, flags=re.MULTILINE)
    examples = re.findall(CODE + ',?  # "(.+)"$', source, flags=re.MULTILINE)
    assert codes and codes == [widths for widths, _ in examples]
    for widths, example in examples:
        assert "".join(str(len(group)) for group in re.findall(r"\d+", example)) == widths
