"""Pools, classes and claims of devmgmtproto v1alpha1: documents, matching, amounts and the search for devices."""
