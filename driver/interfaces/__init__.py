"""Network interfaces of claims: moved into their pods when the sandboxes start, and taken back."""
