"""How an explanation is shown: as text for people, as JSON for programs."""
