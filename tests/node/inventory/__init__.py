"""The inventory: from raw facts to devices, differences and snapshots."""
