"""Tests of the ledger, of what feeds it, and of the kubelet state it is checked against."""
