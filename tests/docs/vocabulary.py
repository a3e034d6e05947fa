"""Words of the tools that documents tell people to type: what is not here is taken for a mistake."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLAIN_TOOLS = _words(
    "apt apt-get env cat cd chmod chown cmp cp diff echo export grep head id install jq journalctl ln ls lspci mkdir "
    "mount mv nvidia-smi python3 pip rdma readlink rm rmmod modprobe sed sh sleep sort stat sudo tail tar tee test "
    "touch tr udevadm umount uname wc which xargs ip lsmod sysctl podman docker buildah ctr crictl git sha256sum "
    "systemd-analyze systemd-sysusers systemd-tmpfiles promtool date watch timeout kill true false"
)
"""Tools of which nothing but the name is known."""

KUBECTL_VERBS = _words(
    "annotate apply auth config cordon create debug delete describe diff drain events exec explain get label logs "
    "patch port-forward rollout run scale taint top uncordon version wait"
)
KINDS = _words(
    "all pod pods po node nodes no daemonset daemonsets ds configmap configmaps cm namespace namespaces ns secret "
    "serviceaccount sa event events ev clusterrole clusterrolebinding role rolebinding service svc deployment "
    "podmonitor prometheusrule runtimeclass crd net-attach-def network-attachment-definitions priorityclass "
    "validatingadmissionpolicy validatingadmissionpolicybinding controllerrevision "
    "resourceslice resourceslices resourceclaim resourceclaims resourceclaimtemplate resourceclaimtemplates "
    "lease leases deviceclass deviceclasses devicetaintrule devicetaintrules"
)
KUBECTL_VALUES = _words(
    "-n --namespace -f --filename -o --output -l --selector -c --container --context --kubeconfig --field-selector "
    "--for --timeout --tail --since --type -p --patch --from-file --from-literal --image --to-revision --sort-by "
    "--grace-period -k --kustomize --revision --overrides --token --as --verb --resource --clusterrole --group"
)
KUBECTL_SWITCHES = _words(
    "-A --all-namespaces -w --watch --all --ignore-daemonsets --delete-emptydir-data --force --previous --follow "
    "-it -i -t --rm --overwrite --show-labels --no-headers --raw --subresource --server-side --dry-run --wait "
    "--restart --list --create-namespace --pod-selector --ignore-not-found --disable-eviction --show-kind"
)
HELM_VERBS = _words("install upgrade uninstall rollback template lint show history status get test list")
HELM_VALUES = _words(
    "-n --namespace -f --values --set --set-string --set-json --set-file --timeout --version --kube-version "
    "--api-versions --show-only -s --history-max -o --output"
)
HELM_SWITCHES = _words(
    "--create-namespace --wait --install -i --atomic --dry-run --reuse-values --reset-values --include-crds --strict "
    "--debug --rollback-on-failure --reset-then-reuse-values --skip-crds"
)
SYSTEMCTL_VERBS = _words(
    "start stop restart reload enable disable status daemon-reload is-active is-enabled mask unmask edit cat show kill "
    "list-units try-restart"
)
FOREIGN_UNITS = _words(
    "kubelet kubelet.service containerd containerd.service crio k0scontroller k0sworker snap.microk8s.daemon-kubelite "
    "nvidia-persistenced nvidia-fabricmanager"
)
