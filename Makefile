# The commands of the checkout; `make help` lists them. Everything made outside it is below $TRAINLAB_HOME.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# One Python for everything, found or refused with a remedy; PYTHON=... names another one.
EMBEDDED_CLUSTER = cluster/python cluster
# Ansible refuses to start in a locale whose encoding is not UTF-8.
export LC_ALL := $(if $(findstring UTF,$(shell echo "$${LC_ALL:-$${LC_CTYPE:-$$LANG}}" | tr a-z A-Z)),$(LC_ALL),C.UTF-8)
export PYTHONPATH := $(CURDIR)/training/src
# Some machines disable bytecode. Without it each process recompiles torch, TRL and Ansible: 12 s instead of 5.
export PYTHONDONTWRITEBYTECODE :=
BIN = .venv/bin
# Test processes: playbooks and servers often wait, hence one more than processors.
JOBS ?= 3
# Prerequisites run in parallel: programs are built while Python packages and the image are fetched. Each often waits for a
# download, hence more jobs than processors.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --jobs=4
endif
# Start and end of a stage, for the table that `make test` prints (tests/timetable.py).
BEGIN = @mkdir -p artifacts/times && { date +%s; head -1 /proc/stat; } > artifacts/times/$@.begin
END = @date +%s > artifacts/times/$@.end
# The parts of the tests prefix each line with their name. Both programs get make's signals; only pytest ends on one.
NAMED = > >(trap '' INT TERM; exec sed -u 's/^/$(1): /') 2>&1
# Begin of `make test` or `make test-rest`, before which the table shows no stage.
RUN = @mkdir -p artifacts/times && { date +%s; head -1 /proc/stat; } > artifacts/times/run.begin && rm -f artifacts/flaky.json
# Those that share a server or a fixture stay together, the longest first (tests/conftest.py). A crashed worker ends the run:
# loadgroup loses the tests of its groups and would wait for them forever.
SPREAD = -q --dist loadgroup --no-loadscope-reorder --max-worker-restart=0

help: # the twelve that people use, in this order
	@for name in demo demo-down test help-all check lint venv gen package test-api bench programs; do \
	  sed -nE "s/^($$name):.*## (.*)/\\1\t\\2/p" $(MAKEFILE_LIST); done | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

help-all: ## every target, the tiers of hours included
	@awk -F':.*##\\+? ' '/^[a-z-]+:.*##\+? /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a real cluster on this machine, then train, gate, serve, compare; a first answer after some minutes
	@$(EMBEDDED_CLUSTER) demo

demo-alone: ##+ the same phase in four local processes, without Kubernetes
	@$(EMBEDDED_CLUSTER) demo-alone

room: ##+ phones in this network teach the model, each a fact of their own, and ask it; without Kubernetes
	@$(EMBEDDED_CLUSTER) room

demo-down: ## remove the cluster; CACHE=1 also removes what was built and downloaded
	@$(EMBEDDED_CLUSTER) demo-down $(if $(CACHE),--cache)

cluster: venv ##+ only the embedded cluster with its operators (NODES=1)
	@$(BIN)/ansible-playbook -i inventory/local playbooks/local.yml $(if $(NODES),-e embedded_cluster_nodes=$(NODES))

ready:
	@$(EMBEDDED_CLUSTER) ready

venv: ready ## the Python environment that drives a cluster, linked as .venv; Linux and macOS
	@$(EMBEDDED_CLUSTER) venv

venv-dev: ready ##+ the one for development instead, with torch and the tools of the tests; what needs it asks for it
	$(BEGIN)
	@$(EMBEDDED_CLUSTER) venv --dev
	$(END)

gen: venv ## generate the chart's schema and tables, presets, and the pages that docs/pages writes
	$(BIN)/python -m trainlab.cli schema --write charts/trainjob
	cp charts/trainjob/templates/_shared.tpl charts/room/templates/
	PYTHONPATH="$(PYTHONPATH):cluster:tests:docs" $(BIN)/python -m pages

# Without URL the addresses in the index are relative to it. HELM=... takes another Helm than the one that is built here.
package: gen $(if $(HELM),,binaries-gate) ## the charts as archives, and a chart repository's index, below artifacts/charts (URL=...)
	@rm -rf artifacts/charts && mkdir -p artifacts/charts
	@helm="$(or $(HELM),$$(PYTHONPATH=cluster $(BIN)/python -c 'from embedded_cluster.builds import build; print(build.binary("helm"))'))"; \
	"$$helm" package charts/trainjob charts/room --destination artifacts/charts && \
	"$$helm" repo index artifacts/charts $(if $(URL),--url "$(URL)")

# TAG=v1.2.3 refuses another version than that of galaxy.yml. HELM=... as for package.
release: package venv-dev ##+ collection, chart and Python package of this version, with their hashes, in artifacts/release (TAG=...)
	@[ "$(or $(TAG),v$(VERSION))" = "v$(VERSION)" ] || { echo "error: TAG=$(TAG), but galaxy.yml has version $(VERSION); tag v$(VERSION)" >&2; exit 1; }
	@grep -q "^  $(VERSION):" changelogs/changelog.yaml || { echo "error: changelogs/changelog.yaml has no $(VERSION); run antsibull-changelog release" >&2; exit 1; }
	@rm -rf artifacts/release && mkdir -p artifacts/release && cp $(CHARTS:%=artifacts/charts/%-$(VERSION).tgz) artifacts/release
	@$(BIN)/ansible-galaxy collection build --output-path artifacts/release
	@$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir artifacts/release ./training
	@cd artifacts/release && sha256sum -- * > SHA256SUMS && cat SHA256SUMS
CHARTS = trainjob room
VERSION = $(shell sed -n 's/^version: //p' galaxy.yml)

# Both need a login: `helm registry login`, `docker login`. CA=... is the authority of a registry that has one of its own.
# What is published keeps its content: who noted a digest would have another one.
publish-chart: ##+ push the charts of `make release` to REGISTRY=oci://... (HELM=... CA=...)
	@for chart in $(CHARTS); do \
	  if $(or $(HELM),helm) show chart $(REGISTRY)/$$chart --version $(VERSION) $(if $(CA),--ca-file $(CA)) > /dev/null 2>&1; then \
	    echo "error: $(REGISTRY)/$$chart has version $(VERSION) already; raise the version in galaxy.yml, or remove it there" >&2; exit 1; fi; done
	@for chart in $(CHARTS); do $(or $(HELM),helm) push artifacts/release/$$chart-$(VERSION).tgz $(REGISTRY) $(if $(CA),--ca-file $(CA)) || exit 1; done

# The base is that of builds on OpenShift. BuildKit makes SBOM and provenance, and pushes them with the image.
publish-image: ##+ build the trainer image with SBOM and provenance, and push it as IMAGE=registry/name:VERSION; needs docker's buildx
	@! docker buildx imagetools inspect $(IMAGE):$(VERSION) > /dev/null 2>&1 || \
	  { echo "error: $(IMAGE) has the tag $(VERSION) already; raise the version in galaxy.yml, or remove it there" >&2; exit 1; }
	@docker buildx build --push --platform linux/amd64 --sbom=true --provenance=mode=max --file images/trainer/Containerfile \
	  --build-arg BASE=$$(sed -n 's/^image_base: //p' roles/image/defaults/main.yml) --tag $(IMAGE):$(VERSION) .

publish-collection: ##+ publish the collection of `make release` on Ansible Galaxy; its token is in ANSIBLE_GALAXY_SERVER_GALAXY_TOKEN
	@ANSIBLE_GALAXY_SERVER_LIST=galaxy ANSIBLE_GALAXY_SERVER_GALAXY_URL=https://galaxy.ansible.com/ \
	  $(BIN)/ansible-galaxy collection publish artifacts/release/trainlab-rhoai-$(VERSION).tar.gz

golden: gen venv-dev binaries-gate ##+ regenerate the charts' golden renderings
	GOLDEN=1 $(BIN)/pytest -q tests/charts/test_golden.py

lock: venv-dev ##+ regenerate the lock files
	cd images/trainer && for list in requirements tracking; do ../../$(BIN)/pip-compile $(PIP_COMPILE) -o $$list.lock $$list.in || exit 1; done && \
	  awk 'NR == FNR { seen[$$1]; next } /^[^ ]/ { more = !($$1 in seen) } more' requirements.lock tracking.lock > tracking.part && \
	  mv tracking.part tracking.lock
	for list in models alone; do \
	  folder=$$(mktemp -d) && $(BIN)/pip download --quiet --no-deps --dest "$$folder" -r images/trainer/$$list.in && \
	  for package in $$(grep -oE '^[a-z][^ #]+' images/trainer/$$list.in); do \
	    wheel=$$(ls "$$folder"/$$(echo "$${package%%=*}" | tr - _)-*.whl) && \
	    printf '%s \\\n    --hash=sha256:%s\n' "$$package" "$$(sha256sum < "$$wheel" | cut -d' ' -f1)" || exit 1; \
	  done > "$$folder/lock" && mv "$$folder/lock" images/trainer/$$list.lock && rm -r "$$folder" || exit 1; done
	cd cluster/embedded_cluster && for list in installer go; do ../../$(BIN)/pip-compile $(PIP_COMPILE) -o $$list.lock $$list.in || exit 1; done
	uv="$$(PYTHONPATH=cluster $(BIN)/python -c 'from embedded_cluster.builds import pyenv; print(pyenv.uv(pyenv.installer()))')"; \
	  cd cluster/embedded_cluster && "$$uv" pip compile $(UV_COMPILE) -o playbooks.lock playbooks.in -c <(grep -hoE '^[^ ]+==[^ ]+' ../../requirements.lock \
	  ../../images/trainer/requirements.lock | sed '/^cryptography=/s/$$/; sys_platform != "darwin" or platform_machine != "x86_64"/')
	$(BIN)/pip-compile $(PIP_COMPILE) -o requirements.lock requirements.in
	$(BIN)/pip-compile $(PIP_COMPILE) -o docs/requirements.lock docs/requirements.in
PIP_COMPILE = --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links
# For each system and Python of `make venv`; pip-compile knows only those that it runs on.
UV_COMPILE = --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

# What `make test` starts: the rest, a second family of Kubernetes' libraries, is 541 CPU-seconds and waits for test-rest and test-api.
binaries-gate: ready
	$(BEGIN)
	@nice -n 10 $(EMBEDDED_CLUSTER) build --only local-path-provisioner training-operator kserve helm4 chart-testing registry
	$(END)

binaries: ready ##+ the Go programs: Helm 3 and 4 and kwok for the tests, Kubernetes and its operators
	$(BEGIN)
	@nice -n 10 $(EMBEDDED_CLUSTER) build --all
	$(END)

programs: ready ## build every program and write it for TRAINLAB_PROGRAMS, with its hash in cluster/programs.lock
	@$(EMBEDDED_CLUSTER) programs artifacts/programs

# In parallel with the programs, as in `make demo`: one serial chain, which has priority when both want the CPU. By exec, as a
# signal ends a shell at once, and make would not wait for what the program has to end.
image: ready
	$(BEGIN)
	@$(EMBEDDED_CLUSTER) check > /dev/null; case $$? in 0) exec $(EMBEDDED_CLUSTER) trainer-image ;; 3) ;; *) exit 2 ;; esac
	$(END)

lint: lint-python lint-rest ## style and shell of everything, types of the package, the cluster and the test API server

lint-python: venv-dev
	$(BEGIN)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=training/src:cluster $(BIN)/lint-imports --no-cache
	$(BIN)/mypy training/src cluster tests/api_server
	$(END)

lint-rest: venv-dev
	$(BEGIN)
	$(BIN)/yamllint --strict .
	nice -n 10 $(BIN)/ansible-lint --offline -q
	$(BIN)/python docs/style.py
	$(BIN)/shellcheck -x cluster/python cluster/embedded_cluster/*.sh tests/fresh/*.sh .ci/run
	$(END)

check: lint docs tests-check ## the gate: lint, types, unit, chart and contract tests; no cluster, a few minutes

# ansible-lint takes one processor for a minute, so it runs beside the tests
tests-check: lint-python binaries-gate
	$(BIN)/pytest -n $(JOBS) $(SPREAD) -m "not e2e and not api and not fresh and not vm and not slow and not rest and not tier"

# A failed test does not keep another part from reporting what else fails, and summary.py fails for all. An interruption ends
# whatever runs and what follows; no shell between the makes, for it would pass on a TERM only when the tests have ended.
# First what computes, then what waits: the API servers' and the plugins' tests, which import no torch, and lint, alongside the
# cluster's, to which they give way (not to its pods: those are a control group). All at once they starved the cluster's pods of
# processors and memory (2 cores, 24 GiB).
test: tests-lock lint-python binaries-gate image ## one of each kind of every test, the embedded cluster included, then where the time went; CI runs this
	@rm -f $(RESULTS)
	-@exec $(BIN)/pytest -n $(JOBS) $(SPREAD) -m "not e2e and not api and not fresh and not vm and not tier and not rest" --ignore=tests/plugins $(call REPORT,check)
	-@$(MAKE) --no-print-directory --keep-going tests-api tests-e2e lint-rest
	@$(BIN)/python tests/summary.py $(RESULTS)

# Two would write over each other's results. Held by a process that ends with this make, however that ends.
tests-lock:
	@mkdir -p artifacts && exec 9> artifacts/tests.lock && { flock --wait 3 9 || \
	  { echo "error: another make test runs in this checkout (artifacts/tests.lock); wait for it, or run this in another worktree" >&2; exit 1; }; } && \
	{ tail --pid=$$PPID --follow /dev/null < /dev/null > /dev/null 2>&1 & }
	$(RUN)

RESULTS = $(patsubst %,artifacts/%.xml,check api e2e) artifacts/times/lint-rest.end
REPORT = --durations=15 --junitxml=artifacts/$(1).xml $(call NAMED,$(1))

tests-api:
	@exec nice -n 10 $(BIN)/pytest -n 2 $(SPREAD) -m "not tier and not rest" tests/api tests/fresh tests/plugins $(call REPORT,api)

tests-e2e:
	@exec $(BIN)/pytest -v -m "e2e and not tier and not rest" tests/e2e $(call REPORT,e2e)

# UNTIL=EPOCH begins no test after that second; each hour another file is the first. Of test-rest those that compute are first.
test-api: binaries image venv-dev ## what `make test` leaves out of the tests on real API servers
	@rm -f artifacts/rest.xml
	@$(BIN)/pytest -n 2 $(SPREAD) -m "api and tier" tests/api $(call REPORT,rest) && \
	  { [ -n "$(UNTIL)" ] || $(BIN)/python tests/tiers.py passed $@ artifacts/rest.xml; }

test-rest: binaries image venv-dev ##+ what `make test` leaves out of the tests that start runs, playbooks or a cluster: others of a kind that it has
	@rm -f artifacts/slow.xml artifacts/more.xml
	$(if $(UNTIL),,$(RUN))
	-@exec $(BIN)/pytest -n $(JOBS) $(SPREAD) -m "rest and not tier and not e2e" $(call REPORT,slow)
	-@exec $(BIN)/pytest -v -m "e2e and rest and not tier" tests/e2e $(call REPORT,more)
	@$(BIN)/python tests/summary.py artifacts/slow.xml artifacts/more.xml

# npm checks the packages against the lock's hashes and runs none of their scripts; no page needs Node.
ROOM = training/src/trainlab/room/static
room-static: ##+ the scripts of others that the room's pages run, as their lock names them, copied there; needs npm
	@folder=$$(mktemp -d) && cp $(ROOM)/package.json $(ROOM)/package-lock.json $$folder && \
	(cd $$folder && npm ci --silent --ignore-scripts --no-audit --no-fund) && cd $(ROOM) && \
	sed -nE 's/^    "([^"]+\.(js|css))": "([^"]+)".*/\1 \3/p' package.json | while read -r name source; do \
	  cp $$folder/node_modules/$$source $$name && sha256sum $$name || exit 1; done > $$folder/sums && \
	mv $$folder/sums vendored.sha256 && rm -r $$folder

# The generator is apart from the environment of everything else, whose hash its lock would change.
artifacts/docs-tools: docs/requirements.lock | venv-dev
	@rm -rf $@ $@.part && $(BIN)/pip install --quiet --require-hashes --no-deps --target $@.part -r $< && mv $@.part $@ && touch $@

docs: artifacts/docs-tools ## the documentation as a site with search, artifacts/docs/site; fails for a link that leads nowhere
	@rm -rf artifacts/docs && mkdir -p artifacts/docs/pages
	@cp docs/zensical.toml artifacts/docs && cp --parents $(SITE) artifacts/docs/pages
	@PYTHONPATH=tests:docs $(BIN)/python -m pages.status > artifacts/docs/pages/docs/evidence/status.md
	@cd artifacts/docs && PYTHONPATH="$(CURDIR)/artifacts/docs-tools" "$(CURDIR)/$(BIN)/python" -m zensical build --strict
SITE = README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md charts/*/*.md data/*/README.md docs/*.md docs/*/*.md docs/start/docker.yaml docs/learn/lessons/*.md docs/pictures/*.png docs/pictures/*.svg

workshop: venv ##+ the workshop for Showroom, from docs/present/attendees.md, in artifacts/workshop: Antora's content, solve and validate
	@$(BIN)/python docs/workshop.py artifacts/workshop

pictures: venv-dev gen ##+ the README's pictures: the moving one from docs/evidence/demo-log.md, the others from the newest run of `make demo`, from PAGE=http://... of a served model, and from ROOM=, the presenter's address; MERMAID=FILE draws the diagrams; needs Chromium
	@PAGE="$(PAGE)" ROOM="$(ROOM)" MERMAID="$(MERMAID)" PYTHONPATH=training/src:cluster:tests:training/tests $(BIN)/python docs/pictures.py

bench: venv-dev binaries ## every bench with its floor, and one table; a smoke of the first is in `make test`, of the others in `make test-rest` (BENCHES="dedup ...")
	@$(BIN)/pip install --quiet --no-deps --upgrade --target artifacts/bench/peers datasketch==2.0.0
	@PYTHONPATH=training/src:cluster:tests:training/tests:artifacts/bench/peers $(BIN)/python bench/every.py $(BENCHES)

# The default one, 3.5, has a scenario of its own name.
molecule: venv-dev binaries ##+ molecule's scenarios of all OpenShift AI releases; `molecule test` runs only the default one
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/molecule test --all --exclude default
	@$(BIN)/python tests/tiers.py passed $@

# What passed with the files as they are is not run again: a tier of hours goes on after an interruption or a failure.
# CHOSEN="-k trixie" runs a part of it; AGAIN=1 starts it anew.
GOES_ON = PYTHONPATH="$(PYTHONPATH):$(CURDIR)/tests" $(BIN)/pytest -v -p continuing --tier $@ --durations=0 --durations-min=5 $(CHOSEN)

test-all-phases: binaries venv-dev ##+ the e2e tests with every phase on the embedded cluster, and a table of times
	E2E_PHASES=all $(GOES_ON) -m e2e $(patsubst %,tests/e2e/test_%.py,alone room kept demo demo_drills demo_queue demo_lessons demo_lines demo_release demo_gitops demo_vllm demo_places demo_editor demo_restarts demo_room down)

test-openshift: binaries venv-dev ##+ the path of docs/start/openshift.md on the embedded cluster, for each release, with stand-ins for OpenShift's operators
	@$(EMBEDDED_CLUSTER) trainer-image
	$(GOES_ON) -m e2e tests/e2e/test_openshift.py

test-kubernetes: binaries venv-dev ##+ inventory/kubernetes on the embedded cluster as somebody's own, with a registry; again; teardown
	@$(EMBEDDED_CLUSTER) trainer-image
	$(GOES_ON) -m e2e tests/e2e/test_kubernetes.py

test-older: binaries venv-dev ##+ the demo, an attendee's TrainJob and the queues on the embedded cluster, with the older leg of its operators
	TRAINLAB_LEG=older $(GOES_ON) -m e2e tests/e2e/test_demo_queue.py $(patsubst %,tests/e2e/test_demo.py::test_%,demo_trains_gates_serves_and_compares \
	  second_run_changes_nothing an_attendee_trains_a_trainjob_and_leaves_only_the_volumes)

test-engines: venv-dev ##+ the vLLM of OpenShift AI's releases, on CPU, answers as runs were scored, and which keeps adapters apart; downloads 4 GB, 9 on the disk
	$(GOES_ON) -m tier training/tests/models/test_vllm.py

test-effect: venv-dev ##+ survival taught in four local processes with the lowest and the newest torch, transformers, TRL and PEFT; downloads 1 GB each
	$(GOES_ON) -m tier training/tests/test_library_ranges.py

# those beside the lock's that meta/runtime.yml allows
ANSIBLE_CORES = 2.18.19 2.20.10 2.21.5

test-ansible: binaries venv-dev ##+ plugins, playbooks and sanity with the other releases of ansible-core that the collection allows
	$(BIN)/python tests/ansible_range.py $(ANSIBLE_CORES)
	@$(BIN)/python tests/tiers.py passed $@

test-fresh: binaries venv-dev ##+ `make demo` and `make test`, in full, in fresh minimal roots of Debian 12 and 13; takes hours
	$(GOES_ON) -m fresh tests/fresh

test-vm: binaries venv-dev ##+ a phase trained and served in a stock Debian 12 and 13 (systemd, cgroup 2) in QEMU; takes an hour
	@$(EMBEDDED_CLUSTER) trainer-image
	$(GOES_ON) -m vm tests/vm

# The operators' and the image's own tasks change nothing where they are. DRILLS=20 strikes fewer, which is
# no pass of the tier; the same command goes on.
test-drills: NODES = 2
test-drills: cluster venv-dev ##+ faults at random steps of a training in one pod and in two; it has to end with the weights of an undisturbed one
	$(BIN)/ansible-playbook -i inventory/local playbooks/image.yml -e image_site_file=artifacts/site.yaml
	PYTHONPATH=cluster:tests $(BIN)/python -m drills --count $(or $(DRILLS),100)
	@$(if $(filter-out 100,$(DRILLS)),echo "$@: $(DRILLS) drills passed; tests/tiers.yaml and docs/evidence/drills.md note 100 only",\
	  PYTHONPATH=tests $(BIN)/python -m drills.report artifacts/drills.json > artifacts/drills.md && mv artifacts/drills.md docs/evidence/drills.md && \
	  $(BIN)/python tests/tiers.py passed $@)

# CHOSEN="gate-any lock-shared" names some. AGAIN=1 starts it anew.
faults: venv-dev binaries-gate ##+ the faults of tests/faults.yaml, one after the other in a copy: the tests have to notice each
	@PYTHONPATH=cluster:tests $(BIN)/python tests/faults.py $(CHOSEN)

.PHONY: help help-all demo demo-alone room demo-down cluster ready venv venv-dev gen docs package golden lock binaries binaries-gate image lint lint-python lint-rest check
.PHONY: programs test-api test-rest bench tests-check test tests-api tests-e2e pictures molecule test-all-phases test-openshift test-kubernetes test-ansible
.PHONY: test-older test-engines test-effect test-fresh test-vm test-drills faults release publish-chart publish-image publish-collection workshop
.PHONY: room-static tests-lock
