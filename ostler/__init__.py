"""The process: command line, configuration, agent, metrics."""

__version__ = "0.1.0"
