"""Why a claim waits: which question is asked of a cluster's state, and what the allocator's answer means."""
