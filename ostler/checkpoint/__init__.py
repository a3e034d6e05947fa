"""The kubelet's state files for people: what each says, whether it is whole, and what the next start makes of it."""
