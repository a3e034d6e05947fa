"""The parts of the cluster's rig that can be tested without a cluster."""
