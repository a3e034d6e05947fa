"""The image: its Dockerfile and the programs that run in its build stages."""
