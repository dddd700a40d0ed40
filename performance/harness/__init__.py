"""What benchmarks share.

The reference that dedup is compared with belongs to the tests, which no installation holds: the checkout is
put on the path for it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
