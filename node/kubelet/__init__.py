"""What the kubelet serves and writes: pod resources, the plugin watcher, its checkpoint and its state files."""
