"""The inventory: raw facts from sources, devices made of them, and the loop that publishes snapshots."""
