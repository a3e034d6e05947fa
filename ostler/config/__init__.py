"""Configuration: the only parser of configuration files; everything else receives its values."""
