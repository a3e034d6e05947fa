"""An embedded kubelet: device manager, plugin manager and podresources, against which any device plugin can run."""
