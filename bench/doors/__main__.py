"""``python -m bench.doors``: both doors of a real node in a storm; adds its figures to build/bench.json."""

from __future__ import annotations

import sys

from bench.doors.command import main

sys.exit(main())
