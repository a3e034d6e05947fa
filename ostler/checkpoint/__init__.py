"""The kubelet's state files for people: what each says, whether it is damaged, and what the next start does with it."""
