"""Tests of rtnetlink: messages, and real links in network namespaces of their own."""
