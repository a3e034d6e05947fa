"""Pictures of a node's topology: a matrix, a tree, an SVG drawing and JSON, all from one scene."""
