"""The image and the Helm chart on a real cluster: installed, updated, removed, and what the account may do."""
