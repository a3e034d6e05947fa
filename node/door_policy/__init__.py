"""Through which doors this node offers its devices: the configuration's rules and what people wrote on the node."""
