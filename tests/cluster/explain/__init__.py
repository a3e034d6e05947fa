"""``ostler explain`` and ``ostler snapshot`` beside the real scheduler."""
