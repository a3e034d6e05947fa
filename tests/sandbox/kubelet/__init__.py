"""The embedded kubelet, judged by what real kubelets did."""
