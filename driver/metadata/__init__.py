"""Files in a container that describe the devices of a claim's request (KEP-5304)."""
