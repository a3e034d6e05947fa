"""Rules and what a door shows because of them."""
