"""The components of the cluster: Go modules pinned here, built once and kept in the cache folder."""
