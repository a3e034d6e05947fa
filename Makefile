# Every target sets up what it needs by itself: a virtual environment from the lock file and, as root on Debian or
# Ubuntu, the system packages. Without root, tests that need a missing package are skipped by name.
#
#   make sandbox              the agent against an embedded kubelet on a recorded node
#   make sandbox NODE=sriov-2 another recorded node (see sandbox/nodes); NODE=here for this machine's own devices
#   make sandbox ARGS=--once  the same, once, as JSON
#   make test                 all tests
#   make check                lint, types, import rules, generated code
#   make bench                the benchmark, into build/bench.json; QUICK=1 for its short form
#   make figures              commit to the figures of build/bench.json: bench/results.json and docs/performance.md
#   make cluster              a real Kubernetes on this machine (as root on Debian); NODES=2, K8S=1.34
#   make cluster-down         end it and remove every trace of it
#   make cluster-test         the tests on a real Kubernetes; TESTS=tests/cluster/door for some, CLUSTERS=3 side by side
#   make cluster-test-all     the long ones too, and the older versions of Kubernetes
#   make health-bench         from a fault to the doors, and back; QUICK=1 for its short form
#   make doors-bench          500 Jobs at both doors of one node, and what a conflict costs; QUICK=1 for its short form
#   make sharing-bench        shares and partitions beside whole GPUs; QUICK=1 for its short form
#   make dra-bench            claims and slices against a real API server; QUICK=1 for the short form
#   make cluster-bench        pods' start times with and without devices
#   make scale-bench          what 200 agents ask of an API server; QUICK=1 for 20, ARGS='--nodes 1000' for more
#   make judge                generated cases against Kubernetes' own allocator and CEL; COUNT=20000 SEED=7
#   make judge-slices         generated lives of ResourceSlices against Kubernetes' own controller; COUNT=300 SEED=7
#   make judge-pools          generated pools, classes and claims, converted, against the allocator; COUNT=5000 SEED=7
#   make judge-cells          random pods, failures and restarts on cells, 50,000 steps: every guarantee must hold; STEPS=
#   make soak                 a thousand pods while agent and kubelet are restarted and killed
#   make image                the container image, by buildah; BASE=, TAG=, OUTPUT=; RELEASE=1 refuses a base by tag alone
#   make base-digest          ask the registry for the digest of the image's base, and pin it in the Dockerfile
#   make chart                the chart as a package; KEY=, KEYRING=, PASSPHRASE=, SOURCE=; RELEASE=1 refuses an unsigned one
#   make sbom                 what wheel and image are made of, as CycloneDX in build/sbom; after make image
#   make audit                known vulnerabilities of what runs on nodes; INDEX=pypi, or the URL of a mirror
#   make docs                 generate the configuration reference, the chart's pages and the manifests anew
#   make protos               generate the gRPC stubs anew
#   make lock                 resolve the dependencies anew
#   make install              as root: ostler as a systemd service (docs/systemd.md); PREFIX=/opt/ostler DESTDIR= PYTHON=
#   make uninstall            remove it again; configuration and state stay

SHELL := /bin/bash
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
NODE ?= h100-sxm-8
ARGS ?=
NODES ?= 1
K8S ?=
# Waiting for sockets is two thirds of what the tests do: more workers than cores. A worker that is done takes over half of
# another one's tests.
WORKERS ?= 7
COUNT ?= 5000
SEED ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup system tools sandbox test check docs image base-digest chart sbom audit bench figures health-bench doors-bench sharing-bench cluster-system cluster cluster-down cluster-test cluster-test-all dra-bench cluster-bench scale-bench judge judge-slices judge-pools judge-cells soak protos install uninstall lock clean

help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' Makefile

# The stamp holds the lock file's content: a changed lock makes a new environment.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(MAKE) --no-print-directory system
	@echo "setting up $(VENV) ..." >&2
	@rm -f $@
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if command -v uv >/dev/null 2>&1; then \
		uv pip sync --quiet --python $(BIN)/python --compile-bytecode --require-hashes requirements.lock; \
	else \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock; \
	fi
	@site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		&& pwd > "$$site/ostler.pth" \
		&& printf '#!%s\nimport sys\nfrom ostler.cli.main import main\nsys.exit(main())\n' "$$(pwd)/$(BIN)/python" > $(BIN)/ostler \
		&& chmod +x $(BIN)/ostler
	@touch $@

setup: $(VENV)/.ready

# Packages: the virtual environment's module, the compiler for the stub NVML library, libudev for the agent, what the
# tests of live hardware need (a mocked /sys with uevents, and ip for network namespaces), those of the image (buildah, a
# static shell), of the chart's signature (gpg) and of the unit (systemd-analyze).
system:
	@missing=""; \
	$(PYTHON) -c 'import ensurepip' >/dev/null 2>&1 || missing="$$missing python3 python3-venv"; \
	command -v gcc >/dev/null 2>&1 && printf '#include <stdio.h>\nint main(void){return 0;}\n' | gcc -x c -o /dev/null - 2>/dev/null || missing="$$missing gcc libc6-dev"; \
	libraries=$$(PATH="$$PATH:/usr/sbin:/sbin" ldconfig -p 2>/dev/null); \
	case "$$libraries" in *libudev.so.1*) ;; *) missing="$$missing libudev1" ;; esac; \
	case "$$libraries" in *libumockdev.so.0*) ;; *) missing="$$missing umockdev libumockdev0" ;; esac; \
	PATH="$$PATH:/usr/sbin:/sbin" command -v ip >/dev/null 2>&1 || missing="$$missing iproute2"; \
	command -v buildah >/dev/null 2>&1 || missing="$$missing buildah"; \
	command -v gpg >/dev/null 2>&1 || missing="$$missing gnupg"; \
	test -x /bin/busybox || missing="$$missing busybox-static"; \
	command -v systemd-analyze >/dev/null 2>&1 || missing="$$missing systemd"; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
			echo "installing$$missing ..." >&2; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
		else \
			echo "missing:$$missing (install them, or run make as root on Debian or Ubuntu)" >&2; \
			$(PYTHON) -c 'import ensurepip' >/dev/null 2>&1; \
		fi; \
	fi

sandbox: setup
	@$(BIN)/ostler sandbox --node $(NODE) $(ARGS)

# Bytecode is kept: each worker and each agent that a test starts would compile all modules anew.
test: export PYTHONDONTWRITEBYTECODE :=
test: TESTS ?= tests
test: setup tools
	@$(BIN)/python -m tests.bytecode $(TESTS)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS) $(ARGS)

# Built before the tests and not in one: it takes minutes, once.
tools: setup
	@$(BIN)/python -m tests.cluster.components tools >/dev/null || echo "tests of the chart and of grpcurl are skipped" >&2
	@$(BIN)/python -m tests.judge.build >/dev/null || echo "tests against Kubernetes' own allocator are skipped" >&2

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m protos.generate --check
	$(BIN)/python -m ostler.config.reference --check

# What is generated from the configuration's schema and the chart: the reference, the chart's pages, plain manifests.
docs: setup tools
	$(BIN)/python -m ostler.config.reference
	$(BIN)/python -m deploy.generate
	$(BIN)/python -m bench.documented

TAG ?= ostler:latest
OUTPUT ?= build/ostler-image.tar
image: setup
	@mkdir -p $(dir $(OUTPUT))
	base=$$($(BIN)/python -m deploy.image.pinning base $(BASE) $(if $(RELEASE),--release)) && \
	buildah bud --layers --force-rm --build-arg BASE=$$base \
		--build-arg VERSION=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' ostler/__init__.py) \
		--build-arg REVISION=$$(git rev-parse HEAD) --build-arg CREATED=$$(date -u +%Y-%m-%dT%H:%M:%SZ) \
		--file deploy/image/Dockerfile --tag $(TAG) .
	buildah push $(TAG) oci-archive:$(OUTPUT):$(TAG)

base-digest: setup
	@$(BIN)/python -m deploy.image.pinning pin $(BASE)

KEY ?=
chart: setup tools
	@$(BIN)/python -m deploy.chart_package $(if $(KEY),--key '$(KEY)') $(if $(KEYRING),--keyring '$(KEYRING)') \
		$(if $(PASSPHRASE),--passphrase-file '$(PASSPHRASE)') $(if $(SOURCE),--source '$(SOURCE)') \
		$(if $(RELEASE),--release) $(ARGS)

sbom: setup
	@$(BIN)/python -m deploy.sbom wheel
	@$(BIN)/python -m deploy.sbom image --archive $(OUTPUT)

# 'python -m deploy.audit' ends with 0 where none is known, 1 where some are, 2 where the index could not be asked; make
# itself ends with 2 for both of the latter.
audit: setup
	@$(BIN)/python -m deploy.audit $(if $(INDEX),--index '$(INDEX)') $(ARGS)

bench: setup
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(ARGS)

figures: setup
	@$(BIN)/python -m bench.adopting $(ARGS)

# What a cluster, the image and the booted machine of the unit's tests need beyond 'system'; a machine that is not Debian
# is told what is missing.
CLUSTER_PACKAGES := runc containernetworking-plugins busybox-static openssl iproute2 util-linux buildah systemd-container \
	debootstrap python3 python3-venv
cluster-system: setup
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		dpkg-query -W $(CLUSTER_PACKAGES) >/dev/null 2>&1 || { \
			echo "installing $(CLUSTER_PACKAGES) ..." >&2; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(CLUSTER_PACKAGES) >/dev/null; }; \
	fi
	@$(BIN)/python -m tests.cluster.components cluster $(K8S) >/dev/null

cluster: cluster-system
	@$(BIN)/python -m tests.cluster up --nodes $(NODES) $(if $(K8S),--version $(K8S))

cluster-down: setup
	@$(BIN)/python -m tests.cluster down

# Clusters side by side: a test waits more than it works. The order of the files is that of tests/cluster/conftest.py.
CLUSTERS ?= 2
cluster-test cluster-test-all: TESTS ?= tests/cluster tests/systemd/booted
# As for 'test': each agent on a node would compile all modules anew.
cluster-test cluster-test-all: export PYTHONDONTWRITEBYTECODE :=
cluster-test: cluster-system
	K8S=$(K8S) $(BIN)/python -m pytest -n $(CLUSTERS) --dist loadfile --no-loadscope-reorder -m "not long" $(TESTS) $(ARGS)

# The long ones on the newest Kubernetes, and the others on every older one that is pinned; with K8S on that one alone.
cluster-test-all: cluster-system
	K8S=$(K8S) $(BIN)/python -m pytest -n $(CLUSTERS) --dist loadfile --no-loadscope-reorder $(TESTS) $(ARGS)
	@$(if $(K8S),,for version in $$($(BIN)/python -m tests.cluster.components older); do \
		echo "Kubernetes $$version ..." >&2; \
		$(MAKE) --no-print-directory cluster-test K8S=$$version TESTS='$(TESTS)' ARGS='$(ARGS)' || exit 1; \
	done)

health-bench: setup
	$(BIN)/python -m bench.health $(if $(QUICK),--quick) $(ARGS)

sharing-bench: setup
	$(BIN)/python -m bench.sharing $(if $(QUICK),--quick) $(ARGS)

doors-bench: cluster-system
	$(BIN)/python -m bench.doors $(if $(QUICK),--quick) $(ARGS)

dra-bench: cluster-system
	$(BIN)/python -m bench.dra $(if $(QUICK),--quick) $(ARGS)

cluster-bench: cluster-system
	$(BIN)/python -m bench.cluster $(if $(QUICK),--quick) $(ARGS)

scale-bench: cluster-system
	$(BIN)/python -m bench.scale $(if $(QUICK),--quick) $(ARGS)

judge: setup
	@$(BIN)/python -m tests.judge.fuzz allocate --seed $(SEED) --count $(COUNT)
	@$(BIN)/python -m tests.judge.fuzz cel --seed $(SEED) --count $(COUNT)

# Starts API servers of its own; each scenario takes the reference seconds, which pass side by side.
judge-slices: COUNT = 200
judge-slices: setup
	@$(BIN)/python -m tests.judge.slices.contest --seed $(SEED) --count $(COUNT)

judge-pools: setup
	@$(BIN)/python -m tests.judge.pools --seed $(SEED) --count $(COUNT)

judge-cells: setup
	@$(BIN)/python -m tests.scheduling.cells.test_properties $(STEPS)

soak: cluster-system
	$(BIN)/python -m bench.cluster.soak $(ARGS)

protos: setup
	$(BIN)/python -m protos.generate

# Nothing of the development environment is used: only bash and a Python that the service can run with.
SERVICE = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' UNITDIR='$(UNITDIR)' PYTHON='$(if $(filter file,$(origin PYTHON)),,$(PYTHON))'

install:
	@$(SERVICE) systemd/install.sh

uninstall:
	@$(SERVICE) systemd/uninstall.sh

lock: setup
	@command -v uv >/dev/null 2>&1 || { echo "'make lock' needs uv (pip install uv)"; exit 1; }
	uv pip compile --quiet --upgrade --python-version 3.11 --universal --generate-hashes --no-emit-index-url \
		--no-emit-find-links --group dev --custom-compile-command "make lock" -o requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
