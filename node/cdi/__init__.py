"""CDI specs: model, validation, encoding, and the folder they are written to."""
