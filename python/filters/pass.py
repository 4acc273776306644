#!/usr/bin/env python3
"""The filter that does nothing: the skeleton of one in Python, and what a hop through it costs.

Runs in: a filter process, in a jail of its own. Sees: the heads of clients' requests. Never: looks at them.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # where it lies if it is not installed

from bulkhead_filter import requests

for request in requests():
    # Here: look at request.path, request.field("host"), request.peer; change request.head, or drop the request.
    request.pass_on()
