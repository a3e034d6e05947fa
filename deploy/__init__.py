"""How ostler is installed: image, Helm chart, plain manifests, alert rules; and the programs that generate them."""
