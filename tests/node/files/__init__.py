"""Files written whole, and records."""
