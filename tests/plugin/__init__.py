"""Door one: the device plugin."""
