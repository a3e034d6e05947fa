"""``python -m ostler``."""

from __future__ import annotations

import sys

from ostler.cli.main import main

sys.exit(main())
