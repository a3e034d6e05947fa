"""The host's network as rtnetlink and ethtool show it."""
