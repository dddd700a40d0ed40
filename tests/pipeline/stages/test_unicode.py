"""What another Python, whose tables of Unicode know more characters, makes in a store of this one."""

import json
import subprocess
import sys

VERSIONS = """
import json, unicodedata
unicodedata.unidata_version = "99.0.0"
from pipeline.stages import decontamination, dedup, quality
from pipeline.stages.dedup import passages
print(json.dumps([
    quality.VERSION, dedup.VERSION, passages.VERSION, decontamination.INDEX_VERSION, decontamination.VERSION
]))
"""


def test_what_depends_on_the_unicode_of_python_is_made_again_with_a_python_of_another() -> None:
    printed = subprocess.run([sys.executable, "-c", VERSIONS], check=True, capture_output=True).stdout
    assert [version for version in json.loads(printed) if "unicode-99.0.0" not in version] == []
