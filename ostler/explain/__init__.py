"""Why a claim is pending: the cluster's objects, what is asked of them, and the answer."""
