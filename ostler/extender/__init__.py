"""The scheduler extender: cells for gangs, as kube-scheduler asks for them over HTTP."""
