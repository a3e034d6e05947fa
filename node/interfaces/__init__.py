"""Network interfaces that are moved into pods' network namespaces and taken back."""
