"""Has pytest find what the tests share; everything else is in lib/hooks.py."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "lib"))

from hooks import *  # noqa: E402, F403
