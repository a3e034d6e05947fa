"""Installed packages made ready for an image or a node: byte-compiled, without files that neither needs.

``python packages.py ENVIRONMENT`` treats a virtual environment of an image; ``python packages.py ENVIRONMENT PLACE``
one that will be moved to PLACE on a node. The agent cannot write byte code in either, so that a module without it is
compiled anew at each start: that costs most of the start-up time and tens of megabytes of memory, which a process
keeps. So everything that can be imported is compiled, except the generated models and calls of the kubernetes client:
they are most of its 75 MB, are loaded one by one when somebody names them, and ostler names none.
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
    "setuptools",
    "setuptools-*.dist-info",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence.pth",
    "kubernetes/aio",  # a second client beside the one that is used, 43 MB
    "__pycache__",
)
"""Files of packages that nothing imports at run time, as patterns in site-packages."""
COMMANDS = ("ostler", "python*")
"""Programs of the environment that stay, as patterns."""


def settle(environment: Path, place: Path | None = None) -> None:
    """Compile the packages of ``environment`` and remove the rest; raises ``SystemExit`` when one does not compile.

    Nothing in an image changes, so nothing has to be compared with its source at each start. On a node, where the
    environment will be at ``place``, somebody may mend a file.
    """
    mode = py_compile.PycInvalidationMode
    # The folder in which packages are put together is not where they will be.
    staged = str(environment).partition("/opt/")[0] or None
    kept = {found for pattern in COMMANDS for found in environment.glob(f"bin/{pattern}")}
    _remove(set(environment.glob("bin/*")) - kept)
    for site in sorted(environment.glob("lib/python3.*/site-packages")):
        _remove(found for pattern in LEFT_OUT for found in list(site.glob(pattern)))
        compiled = compileall.compile_dir(
            site,
            stripdir=str(environment) if place else staged,
            prependdir=str(place) if place else None,
            quiet=1,
            rx=NOT_COMPILED,
            workers=0,
            invalidation_mode=mode.TIMESTAMP if place else mode.UNCHECKED_HASH,
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
    settle(*map(Path, sys.argv[1:]))
