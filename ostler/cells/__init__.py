"""The input and output of ``ostler cells``: what the cluster has, configurations, plans, traces and pictures."""
