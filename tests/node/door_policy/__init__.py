"""Through which doors a node offers its devices: what people write on it, and what the server keeps."""
