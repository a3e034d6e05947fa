"""Tests of the ledger and of the kubelet state it is checked against."""
