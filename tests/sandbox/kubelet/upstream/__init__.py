"""The themes of the tests that Kubernetes has for its device manager and plugin manager, rebuilt here."""
