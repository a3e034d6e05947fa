"""Installed packages made ready for an image: byte-compiled, without files that the image does not need.

``python packages.py ENVIRONMENT`` treats a virtual environment. A module without byte code is compiled anew at each
start, because the image is read-only: that costs most of the start-up time and tens of megabytes of memory, which a
process keeps. So everything that can be imported is compiled, except the generated models and calls of the kubernetes
client: they are most of its 75 MB, are loaded one by one when somebody names them, and ostler names none.
"""

from __future__ import annotations

import compileall
import py_compile
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

NOT_COMPILED = re.compile(r"/kubernetes/client/(models|api)/(?!__init__)")
"""Modules that are not loaded."""
LEFT_OUT = (
    "*/tests",
    "*/test",
    "*/testing",
    "google/protobuf/testdata",
    "example.py",  # of nvidia-ml-py
    "_pytest",
    "pip",
    "pip-*.dist-info",
    "kubernetes/aio",  # a second client beside the one that is used, 43 MB
    "__pycache__",
)
"""Files of packages that nothing imports at run time, as patterns in site-packages."""
COMMANDS = ("ostler", "python*")
"""Programs of the environment that stay, as patterns."""


def settle(environment: Path) -> None:
    """Compile the packages of ``environment`` and remove the rest; raises ``SystemExit`` when one does not compile."""
    kept = {found for pattern in COMMANDS for found in environment.glob(f"bin/{pattern}")}
    _remove(set(environment.glob("bin/*")) - kept)
    for site in sorted(environment.glob("lib/python3.*/site-packages")):
        _remove(found for pattern in LEFT_OUT for found in list(site.glob(pattern)))
        compiled = compileall.compile_dir(
            site,
            # The folder in which packages are put together is not where they will be.
            stripdir=str(site).partition("/opt/")[0] or None,
            quiet=1,
            rx=NOT_COMPILED,
            workers=0,
            # Nothing in an image changes, so nothing has to be compared with its source at each start.
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        if not compiled:
            raise SystemExit(f"packages in {site} do not compile; the messages above say which")


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    settle(Path(sys.argv[1]))
