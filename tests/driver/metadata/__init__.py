"""Tests of the metadata files of claims."""
