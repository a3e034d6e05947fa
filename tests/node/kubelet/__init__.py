"""Tests of node.kubelet: what is read of the kubelet and written for it."""
