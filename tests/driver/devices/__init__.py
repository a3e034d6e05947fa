"""Devices as DRA devices: attributes, peers, cells, order, taints, and what containers get with them."""
