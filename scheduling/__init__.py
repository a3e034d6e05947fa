"""What a scheduler computes: the resource API's objects, CEL, the structured allocator, and why a claim waits."""
