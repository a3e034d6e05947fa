"""What the API server says of this node's doors: the Node's label and annotation, and whether taints are kept."""
