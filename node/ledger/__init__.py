"""Who has which device: the ledger, the sources of its holds, and what both doors have to know of each other."""
