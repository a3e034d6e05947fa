"""``python -m bench.sharing [--quick]``: shares and partitions beside whole GPUs; adds figures to build/bench.json."""

from __future__ import annotations

import os
import sys

# Before gRPC is loaded: that a measured process ends its connections is no news.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from bench.sharing.command import main

sys.exit(main())
