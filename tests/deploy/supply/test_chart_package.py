"""The chart's package: metadata that people and catalogues need, and a signature that Helm verifies."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from deploy.chart_package import main
from deploy.generate import CHART, ICON
from ostler import __version__
from tests.deploy.chart.rendering import helm

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

PACKAGE = f"ostler-{__version__}.tgz"
SIGNER = "Release Test"


def packed(target: Path, *words: str) -> int:
    return main(["--helm", str(helm()), "--to", str(target), *words])


def metadata(package: Path) -> dict[str, Any]:
    """Of the chart in a package."""
    with tarfile.open(package) as archive:
        found = archive.extractfile("ostler/Chart.yaml")
        assert found is not None
        document: dict[str, Any] = yaml.safe_load(found)
        return document


def gpg(home: Path, *words: str) -> bytes:
    return subprocess.run(["gpg", "--homedir", str(home), "--batch", *words], check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keyring with a key that was made for the test."""
    if shutil.which("gpg") is None:
        pytest.skip("gpg is missing: install the package gnupg")
    home = tmp_path_factory.mktemp("k")
    home.chmod(0o700)
    gpg(
        home, "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key", SIGNER, "rsa2048", "sign", "1d"
    )
    path = home / "secring.gpg"
    path.write_bytes(gpg(home, "--export-secret-keys"))
    (home / "pubring.gpg").write_bytes(gpg(home, "--export"))
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    return path


def test_the_charts_metadata_are_what_catalogues_ask_for() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {"description", "keywords", "kubeVersion", "maintainers", "icon", "annotations"} <= chart.keys()
    assert {"dra", "device-plugin", "gpu"} <= set(chart["keywords"])
    notes = {name.removeprefix("artifacthub.io/"): text for name, text in chart["annotations"].items()}
    assert (notes["category"], notes["license"]) == ("ai-machine-learning", "Apache-2.0")
    (image,) = yaml.safe_load(notes["images"])
    assert image == {"name": "ostler", "image": f"ostler:{__version__}"}
    changes = yaml.safe_load(notes["changes"])
    assert all(set(each) == {"kind", "description"} for each in changes)
    assert {each["kind"] for each in changes} <= {"added", "changed", "deprecated", "removed", "fixed", "security"}


def test_the_icon_is_in_the_chart_itself() -> None:
    kind, _, data = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == ICON.read_bytes()
    assert ET.fromstring(ICON.read_text()).tag.endswith("svg")


def test_a_package_without_a_key_is_made_and_said_to_be_unsigned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert packed(tmp_path) == 0
    assert metadata(tmp_path / PACKAGE) == yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert not (tmp_path / f"{PACKAGE}.prov").exists()
    assert capsys.readouterr().err == ("the package is not signed, because no key is given: KEY=USER-ID signs it\n")


def test_where_sources_and_key_are_is_added_to_the_metadata(tmp_path: Path) -> None:
    words = ("--source", "https://example.com/src", "--key-url", "https://example.com/key", "--fingerprint", "00AA")
    assert packed(tmp_path, *words) == 0
    found = metadata(tmp_path / PACKAGE)
    assert (found["home"], found["sources"]) == ("https://example.com/src", ["https://example.com/src"])
    key = yaml.safe_load(found["annotations"]["artifacthub.io/signKey"])
    assert key == {"fingerprint": "00AA", "url": "https://example.com/key"}


def test_a_signed_package_is_verified_by_helm(tmp_path: Path, keyring: Path) -> None:
    assert packed(tmp_path, "--key", SIGNER, "--keyring", str(keyring), "--release") == 0
    verify = [str(helm()), "verify", "--keyring", str(keyring.with_name("pubring.gpg")), str(tmp_path / PACKAGE)]
    assert SIGNER in subprocess.run(verify, check=True, capture_output=True, text=True).stdout
    with (tmp_path / PACKAGE).open("ab") as package:
        package.write(b"more")
    assert subprocess.run(verify, check=False, capture_output=True).returncode != 0


def test_a_release_is_not_made_without_a_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert packed(tmp_path, "--release") == 1
    assert capsys.readouterr().err == (
        "deploy.chart_package: no key is given, and a release is signed: give KEY=USER-ID (and KEYRING=FILE)\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_keyring_that_is_not_there_is_named_with_how_to_make_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "secring.gpg"
    assert packed(tmp_path, "--key", SIGNER, "--keyring", str(missing)) == 1
    told = capsys.readouterr().err
    assert f"the keyring {missing} is not there, so nothing can be signed as {SIGNER}: make it with 'gpg --exp" in told
    assert told.endswith("or name another one with KEYRING=FILE\n")


def test_a_key_that_the_keyring_has_not_is_refused(
    tmp_path: Path, keyring: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert packed(tmp_path, "--key", "Somebody Else", "--keyring", str(keyring)) == 1
    assert "deploy.chart_package: helm makes no package: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_fingerprint_without_its_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        packed(tmp_path, "--fingerprint", "00AA")
    assert "--key-url and --fingerprint describe one key: give both or neither" in capsys.readouterr().err
