# One target, one word. Bare `make` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
# Passed to ansible-playbook, for example: make up ARGS='--tags check -v'; for mutants, mutation and fuzz it selects what runs.
ARGS ?=
# inventory/existing installs on a cluster that is there already.
INVENTORY ?= inventory/kind
VENV := .venv
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gpu-scheduler
BIN := $(VENV)/bin
PLAYBOOK := $(BIN)/ansible-playbook --inventory $(INVENTORY)
SUITES := $(BIN)/python -m tests.suites
GATE := integration+check faults+attacks+pages default+unit+contracts

export PATH := $(CURDIR)/$(BIN):$(PATH)
# Roles and modules are found from the checkout, whatever the user's own ansible configuration says.
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Ansible starts only with a UTF-8 locale that exists, and ssh hands on the name of one that may not: the C library brings this one.
# Roles read what programs say, which is English in it.
export LC_ALL := C.UTF-8
unexport LANGUAGE

.PHONY: help
help: ## List the targets
	@printf 'gpu-scheduler: say exactly which GPU on which node each replica gets\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nFirst time here: make up, then make test. Variables: ARGS (to ansible-playbook), PYTHON (%s).\n' '$(PYTHON)'

.PHONY: up
up: env-deploy env-cli ## Create the cluster, install everything, prove the placement, write evidence/
	@$(PLAYBOOK) site.yml $(ARGS)
	@$(MAKE) env

.PHONY: deploy-aks
deploy-aks: ## Install on AKS, as make up INVENTORY=inventory/aks (ARGS='-e kube_context=NAME -e image_registry=HOST/PATH')
	@$(MAKE) up INVENTORY=inventory/aks

.PHONY: verify
verify: env-deploy ## Prove the placement again on the running cluster; changes nothing
	@$(PLAYBOOK) playbooks/verify.yml $(ARGS)

.PHONY: status
status: env-deploy ## Show on one screen what runs where, and how to repair what is missing; changes nothing
	@ANSIBLE_CALLBACKS_ENABLED=ansible.builtin.default $(PLAYBOOK) playbooks/status.yml $(ARGS)

.PHONY: fix-nodes
fix-nodes: env-deploy ## Write a map of the nodes and GPUs that the cluster has into the inventory (ARGS=--check only shows it)
	@$(PLAYBOOK) playbooks/fix_nodes.yml $(ARGS)

.PHONY: manifests
manifests: env-deploy ## Write what make up applies as files for kubectl, into manifests/ (ARGS='-e manifests_dir=/path')
	@$(PLAYBOOK) playbooks/manifests.yml $(ARGS)

.PHONY: env
env: ## Print the command that points kubectl at the cluster, and puts gpu-scheduler on PATH
	@if grep -qsx 'cluster_provider: kind' '$(INVENTORY)/group_vars/all/facts.yml'; then \
	  printf 'Enter the cluster with:\n\n  export KUBECONFIG=%q PATH=%q:%q:"$$PATH"\n\n' '$(CURDIR)/.kube/config' '$(CURDIR)/bin' '$(CURDIR)/$(BIN)'; \
	else printf 'Enter the cluster by your own kubeconfig and kube_context; for the programs of this checkout:\n\n  export PATH=%q:%q:"$$PATH"\n\n' \
	  '$(CURDIR)/bin' '$(CURDIR)/$(BIN)'; fi

.PHONY: down
down: env-deploy ## Delete the kind cluster of make up; keep cache and packages; fail if INVENTORY creates no cluster
	@$(PLAYBOOK) playbooks/destroy.yml $(ARGS)

.PHONY: uninstall
uninstall: env-deploy ## Remove the installation from the cluster, kind's or INVENTORY's; running pods go on (ARGS='-e delete_crds=true')
	@$(PLAYBOOK) playbooks/uninstall.yml $(ARGS)

.PHONY: prepare-rollback
prepare-rollback: env-deploy ## Remove from the cluster what would hinder v0.1.0, and print the commands that install that
	@$(PLAYBOOK) playbooks/prepare_rollback.yml $(ARGS)

.PHONY: clean
clean: ## Remove the cache and the tool environment; the cluster must be down
	@if compgen -G '.kube/config' >/dev/null || compgen -G '.kube/*/config' >/dev/null; then \
	  echo 'cannot clean while a cluster of this checkout stands (.kube/ has its kubeconfig): run make down first (rm -r .kube where its engine is gone for good)'; exit 1; fi
	@if [ -e '$(CACHE)/engine/dockerd.pid' ] && kill -0 "$$(cat '$(CACHE)/engine/dockerd.pid')" 2>/dev/null; then \
	  echo 'cannot clean while the container engine that make up started runs: stop its containers, then run make down'; exit 1; fi
	@rm -rf --one-file-system '$(VENV)' .kube '$(CACHE)'
	@echo 'Removed $(VENV) and $(CACHE). What stays: the packages that make up installed, and images in the container engine.'

.PHONY: test
test: env-dev ## Run the gate: check, unit, contracts, integration, pages, attacks, faults, and the main job on a cluster
	@$(SUITES) $(GATE)

.PHONY: test-fast
test-fast: env-dev ## Run what needs neither cluster nor API server: check, unit, contracts
	@$(SUITES) check unit contracts

.PHONY: test-integration
test-integration: env-dev ## Run suite integration: real etcd and kube-apiserver processes
	@$(SUITES) integration

.PHONY: test-attacks
test-attacks: env-dev ## Run suite attacks: tenants and stolen tokens against everything that the roles install
	@$(SUITES) attacks

.PHONY: test-faults
test-faults: env-dev ## Run suite faults: faults between the scheduler and the API server
	@$(SUITES) faults

.PHONY: test-long
test-long: env-dev ## Run the tests marked long: shipped times of the Lease, long outages; prints figures
	@$(SUITES) long

.PHONY: test-all
test-all: env-dev ## Run make test and all other suites, about three hours: before a release
	@$(SUITES) bare $(GATE) beyond

.PHONY: test-suite
test-suite: env-dev ## Run one suite beyond make test (SUITE=healing; else the commit chooses)
	@$(SUITES) $(or $(SUITE),in-turn)

.PHONY: test-ci
test-ci: env-dev ## Run suite bare, make test and one suite beyond it, as .ci/run does (SUITE=healing; else the commit chooses)
	@$(SUITES) bare $(GATE) $(or $(SUITE),in-turn)

.PHONY: molecule
molecule: env-dev ## Run molecule's scenarios on clusters of their own (KEEP=1 keeps them)
	@$(SUITES) default usage redeploy healing existing charts isolation

.PHONY: check
check: env-dev ## Lint, types, import laws and structure
	@$(SUITES) check

.PHONY: mutants
mutants: env-dev ## Apply each kept mutant of YAML and CEL to a copy and check that a test fails (ARGS='lease policy-' selects by name)
	@$(BIN)/python -m tests.mutants.run $(ARGS)

.PHONY: mutation
mutation: env-dev ## Make mutants of changed lines, or for promises chosen at random (ARGS='--since main', '--sample 60 --seed 1')
	@PYTHONPATH=.:scheduler $(BIN)/python -m tests.mutation $(ARGS)

.PHONY: fuzz
fuzz: env-dev $(VENV)/.fuzz.stamp ## Fuzz parser, review and watches for ten minutes (ARGS='60 map': seconds for each target, and the targets)
	@PYTHONPATH=.:scheduler $(BIN)/python -m tests.fuzz $(ARGS)

.PHONY: soak
soak: env-dev ## Run the simulator: the scheduler under every fault, in virtual time (SEED=1 STEPS=100000)
	@PYTHONPATH=.:scheduler $(BIN)/python -m simulator --seed $(or $(SEED),1) --steps $(or $(STEPS),100000) --after $(or $(AFTER),0) --jobs $(or $(JOBS),$(shell getconf _NPROCESSORS_ONLN))

.PHONY: bench-quick
bench-quick: env-dev programs ## Measure how fast pending pods are placed, beside the API server's limit and kube-scheduler: 4 minutes
	@PYTHONPATH=.:scheduler $(BIN)/python -m bench quick

.PHONY: bench
bench: env-dev programs ## Measure pending pods, arrivals and admission beside the limit, kube-scheduler and others: 17 minutes
	@PYTHONPATH=.:scheduler $(BIN)/python -m bench standard

.PHONY: bench-claims
bench-claims: env-dev programs ## Measure pods with ResourceClaims beside kube-scheduler and pods without: 8 minutes
	@PYTHONPATH=.:scheduler $(BIN)/python -m bench claims

.PHONY: bench-neighbours
bench-neighbours: env-dev programs ## Measure a tenant's pods beside another tenant that burdens the scheduler: 15 minutes
	@PYTHONPATH=.:scheduler $(BIN)/python -m bench neighbours

.PHONY: bench-pairs
bench-pairs: env-dev programs ## Measure our scheduler of now and of a commit in alternating pairs (BEFORE=HEAD~20 ONLY=W1,W3): 7 minutes for W1 and W3
	@PYTHONPATH=.:scheduler $(BIN)/python -m bench.pairs '$(BEFORE)' $(ONLY)

.PHONY: bench-full
bench-full: env-dev programs ## Measure all parts: three hours (ONLY=W1,growth measures these parts again)
	@PYTHONPATH=.:scheduler $(BIN)/python -m bench full $(if $(ONLY),--only '$(ONLY)')

.PHONY: bench-profile
bench-profile: env-dev programs ## Profile our CPU time: 3 minutes (ONLY=W1,W6: these workloads only)
	@PYTHONPATH=.:scheduler $(BIN)/python -m bench.profiles $(ONLY)

.PHONY: fmt
fmt: env-dev ## Format the Python code; write what the pages have from the code, the deployer's rights, the boards, and the charts' templates
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/python tests/deployer.py && PYTHONPATH=scheduler $(BIN)/python -m tests.pages && $(BIN)/python -m boards.generate && $(BIN)/python -m charts.generate

.PHONY: recording
recording: env-dev ## Record the terminal that README.md shows, on the cluster of make up
	@PYTHONPATH=scheduler $(BIN)/python -m tests.recording

.PHONY: programs
programs: env-deploy ## Build or fetch the programs that tests need into the cache: etcd, Kubernetes, Prometheus
	@$(PLAYBOOK) playbooks/programs.yml $(ARGS)

.PHONY: lock
lock: env-dev ## Compile the hash-pinned locks in requirements/ from both pyproject.toml
	@requirements/compile

.PHONY: audit
audit: $(VENV)/.audit.stamp ## Compare the locked packages with published advisories (ARGS='-s osv' asks another service); 3: no answer
	@$(BIN)/python -m requirements.audit $(ARGS)

.PHONY: sbom
sbom: $(VENV)/.audit.stamp ## Write sbom/, what the images contain as CycloneDX (SCHEDULER_IMAGE=… CHECK_IMAGE=… adds the base image)
	@$(BIN)/python -m requirements.sbom sbom --scheduler-image='$(SCHEDULER_IMAGE)' --check-image='$(CHECK_IMAGE)'

.PHONY: bump-kubernetes
bump-kubernetes: env-deploy ## Set the one version of Kubernetes (V=1.36.4; where no registry answers DIGEST=sha256:… of kindest/node)
	@$(BIN)/python requirements/bump_kubernetes.py $(if $(DIGEST),--digest '$(DIGEST)') $(if $(REGISTRY),--registry '$(REGISTRY)') -- '$(V)'

.PHONY: env-deploy env-dev env-cli home
env-deploy: home $(VENV)/.deploy.stamp
env-dev: home $(VENV)/.dev.stamp
# A user of a container without an entry in its /etc/passwd has / there, or none.
home:
	@test -w "$${HOME-}" || { echo "cannot use HOME '$${HOME-}': Ansible and the cache need a folder that is there and that this user can write (example: make up HOME=/tmp)" >&2; exit 1; }
# What bin/gpu-scheduler imports. The development environment has it.
env-cli: $(VENV)/.$(if $(wildcard $(VENV)/.dev.stamp),dev,payload).stamp

# Without pip, as an interrupted run or an upgrade of the system's Python leaves it, the environment is made anew, whatever its stamps say.
.PHONY: no-pip
no-pip:
HAS_PIP := $(shell $(BIN)/python -c 'import importlib.util; print(importlib.util.find_spec("pip") is not None)' 2>/dev/null)

# Hash-checked installs; an interrupted one leaves no stamp and is done again. Python compiles what is used when it is used first:
# all of it would be half of the time.
$(VENV)/.%.stamp: requirements/%.txt $(if $(filter True,$(HAS_PIP)),,no-pip)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cannot use $(PYTHON) " + sys.version.split()[0] + ": Python must be 3.11 or newer (example: make up PYTHON=python3.12)")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo 'Making the tool environment $(VENV)'; \
	  $(PYTHON) -c 'import sys, importlib.util; sys.exit(0 if importlib.util.find_spec("ensurepip") else "cannot make $(VENV): $(PYTHON) lacks module ensurepip, which Debian and Ubuntu have in a package of its own: install it (example: apt-get install python3-venv)")'; \
	  $(PYTHON) -m venv --clear $(VENV); }
	@echo 'Installing requirements/$*.txt into $(VENV) (about 2 minutes the first time)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/$*.txt
	@touch $@
