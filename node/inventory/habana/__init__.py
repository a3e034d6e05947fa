"""Intel Gaudi accelerators (Habana Labs): what they are, how they are read, and how containers get them."""
