"""Has pytest find what these tests share with those of the other folders; everything else is in tests/lib/hooks.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "lib"))

from hooks import *  # noqa: E402, F403
