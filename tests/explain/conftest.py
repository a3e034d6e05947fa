"""The certificates of tests of the API server."""

from tests.kube.conftest import account, authority

__all__ = ["account", "authority"]
