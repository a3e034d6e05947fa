"""The image that tests run: the project's own Dockerfile on a base of this machine, built without a daemon or registry.

It is made once for everything that goes into it and kept in the cache folder, where buildah also keeps its layers:
after a change to the sources only the last, small one is made anew. Packages come from wherever this machine's pip gets
them; the build itself reaches no network. ``python -m tests.deploy.image.build`` prints the archive's path.
"""

from __future__ import annotations

import fcntl
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.image.lock import runtime_subset
from ostler import __version__
from tests.deploy.image.base import fill_base, interpreter, program
from tests.making.cache import cache_folder, cached, digest, remove_old

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "deploy/image/Dockerfile"
NAME = "localhost/ostler:test"
"""The image's name in its archive, and in the container runtime that imports it."""
SECRET = "not-for-the-image"
"""A password that the build is given for its packages, and that must be nowhere in what it makes."""
KEPT = 3
"""Archives that stay in the cache folder; older ones that nobody uses are removed when one is made."""
_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def image_archive() -> Path:
    """An OCI archive with the image of the sources as they are, named ``NAME``, for ``ctr -n k8s.io images import``.

    The first time takes a minute or two, after a change some ten seconds, else nothing. Raises ``ToolMissing``, or
    ``CalledProcessError`` when the build fails (its output is on stderr).
    """
    tools = [program(tool) for tool in ("buildah", "busybox", "ldconfig")]
    entry = cached(f"image/ostler-{digest(*_contents(), _platform(), *(tool.name for tool in tools))}", _build)
    return entry / "image.tar"


def inputs() -> Iterator[Path]:
    """Every file that goes into the image, as ``.dockerignore`` lets it."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for name in sorted(line[1:] for line in lines if line.startswith("!")):
        path = ROOT / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)


def storage() -> list[str]:
    """buildah's options for a storage of our own in the cache folder."""
    folder = cache_folder() / "image"
    return ["--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "overlay"]


def buildah(*words: str, capture: bool = False) -> str:
    """Run a command of buildah's on that storage and return what it prints; raises ``CalledProcessError``."""
    done = subprocess.run(
        [str(program("buildah")), *storage(), *words],
        check=True,
        text=True,
        stdout=subprocess.PIPE if capture else sys.stderr,
    )
    return (done.stdout or "").strip()


def _contents() -> Iterator[bytes | str]:
    for path in inputs():
        yield str(path.relative_to(ROOT))
        yield path.read_bytes()
    yield from (path.read_bytes() for path in sorted(Path(__file__).parent.glob("b*.py")))


def _platform() -> str:
    return f"{interpreter()} {platform.python_version()} {platform.machine()} {' '.join(platform.libc_ver())}"


def _build(folder: Path) -> None:
    wheels = _wheels()
    with (cache_folder() / "image/.storage.lock").open("w") as lock:
        # One build at a time, also of other checkouts: each replaces the image that the one before has left.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build_on(_base(), wheels, folder)
    remove_old((cache_folder() / "image").glob("ostler-*"), KEPT)


def _build_on(base: str, wheels: Path, folder: Path) -> None:
    before = buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={NAME}", capture=True)
    buildah(
        *("bud", "--layers", "--force-rm", "--isolation", "chroot", "--pull-never", "--quiet"),
        *("--file", str(DOCKERFILE), "--volume", f"{wheels}:/wheels:ro"),
        *_arguments(BASE=base, PIP_FIND_LINKS="/wheels", PIP_NO_INDEX="1", VERSION=__version__, REVISION="test"),
        *_arguments(PIP_EXTRA_INDEX_URL=f"https://builder:{SECRET}@index.invalid/simple"),
        *("--tag", NAME, str(ROOT)),
    )
    buildah("push", "--quiet", NAME, f"oci-archive:{folder / 'image.tar'}:{NAME}")
    if before and before != buildah("images", "--quiet", "--no-trunc", NAME, capture=True):
        # What it shares with the new image stays, and with that all that is slow to make.
        buildah("rmi", before)


def _arguments(**values: str) -> Sequence[str]:
    return [word for name, value in values.items() for word in ("--build-arg", f"{name}={value}")]


def _base() -> str:
    """The base in buildah's storage, made when it is not there yet."""
    sources = (Path(__file__).with_name("base.py"), ROOT / "deploy/image/runtime.py", ROOT / "deploy/image/debian.py")
    name = f"localhost/ostler-base:{digest(*(path.read_bytes() for path in sources), _platform())}"
    if name in buildah("images", "--format", "{{.Name}}:{{.Tag}}", capture=True).splitlines():
        return name
    with tempfile.TemporaryDirectory() as made:
        root = Path(made, "base")
        path = fill_base(root)
        container = buildah("from", "scratch", capture=True)
        try:
            buildah("add", "--quiet", container, str(root), "/")
            buildah("config", "--env", f"PATH={path}", container)
            buildah("commit", "--quiet", container, name)
        finally:
            buildah("rm", container)
    return name


def _wheels() -> Path:
    """A folder with the wheels of the lock file's packages, by this machine's pip and its settings."""
    lock = runtime_subset((ROOT / "requirements.lock").read_text())
    builders = ROOT / "deploy/image/build-requirements.txt"

    def download(folder: Path) -> None:
        (folder / "runtime.lock").write_text(lock)
        for requirements in (folder / "runtime.lock", builders):
            subprocess.run(
                [
                    *(sys.executable, *_PIP, "download", "--require-hashes", "--only-binary", ":all:", "--no-deps"),
                    *("--dest", str(folder), "--requirement", str(requirements)),
                ],
                check=True,
                stdout=sys.stderr,
            )

    return cached(f"image/wheels-{digest(lock, builders.read_bytes(), _platform())}", download)


if __name__ == "__main__":
    sys.stdout.write(f"{image_archive()}\n")
