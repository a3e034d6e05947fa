"""``ostler kubelet``: what a person or a script types, what it answers, and what is left behind."""
