"""``python -m bench``."""

from __future__ import annotations

import os
import sys

# Set before gRPC is loaded, which would log each connection that a measured process ends.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from bench.command import main

sys.exit(main())
