"""Tests of the kubelet's state files for people."""
