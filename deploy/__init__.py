"""What ostler is installed with: image, Helm chart, plain manifests, alert rules; and what makes parts of them."""
