# Every command that CI runs is a target here. `make help` lists them.

SHELL   := /bin/bash
GO      ?= go
EACH     = $(GO) list ./... | grep -vE '/test/(vm|interop)'
UNITS    = $(LONGEST) $$($(EACH))
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
BUILT   ?= $(shell git log -1 --format=%cI 2>/dev/null || echo 2026-01-01T00:00:00Z)
LDFLAGS := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 5s
ATONCE   ?= $(shell expr 2 '*' $$(nproc))
ARCHES   ?= amd64 arm64

# Packages whose tests take longest begin first, else one of them is left alone at the end.
LONGEST  = ./builder ./test/undone ./packaging/deb ./cmd/caisson-agent ./bootagent/items ./bootagent/node ./fleet/publish ./fleet/rotate ./cmd/caisson ./fleet/rollout ./fleet/hub

# Where goroutines of ours share something, or those of tests do.
RACED    = $(addprefix ./internal/,httpserver machine ownfiles safepath stall verity) \
  ./oci ./oci/keys ./oci/pull ./oci/registry ./oci/sign ./oci/trust ./media/netboot/... ./fleet/index ./fleet/report ./fleet/relay ./fleet/unknown \
  $(addprefix ./bootagent/,process program fetch/download sense/gate items items/exec tell/metrics fetch/stage record/track sense/watch)

BIN      ?= bin
OUT      ?= out
PREFIX   ?= /usr/local

export CGO_ENABLED := 0
export GOFLAGS     := -trimpath $(GOFLAGS)

.DEFAULT_GOAL := help
.PHONY: help build kube install deb release deps test check test-all test-unit test-race test-vm test-interop test-kube-unit test-kube test-kube-long test-long lint vulncheck fuzz bench bench-peers container demo measure size cross clean

help: ## Print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/caisson and bin/caisson-agent
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/caisson
	$(GO) build -ldflags '$(LDFLAGS) -X main.built=$(BUILT)' -tags nethttpomithttp2 -o $(BIN)/ ./cmd/caisson-agent

kube: ## Build bin/caisson-kube, the program for Kubernetes clusters
	@mkdir -p $(BIN)
	cd kube && $(GO) build -ldflags '$(LDFLAGS)' -o $(abspath $(BIN))/ ./cmd/caisson-kube

install: ## Install what was built below $(DESTDIR)$(PREFIX), by default /usr/local: programs, units, manual pages, completions
	@test -x $(BIN)/caisson -a -x $(BIN)/caisson-agent || { echo "nothing is built: make build"; exit 1; }
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/caisson
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/caisson $(BIN)/caisson-agent
	ln -sfn ../lib/caisson/caisson-agent $(DESTDIR)$(PREFIX)/bin/caisson-agent
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|^ExecStart=/usr/lib/|ExecStart=$(PREFIX)/lib/|' packaging/systemd/caisson-agent.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/caisson-agent.service
	sed 's|^ExecStart=/usr/bin/|ExecStart=$(PREFIX)/bin/|' packaging/caisson-fleet.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/caisson-fleet.service
	install -D -m 644 packaging/caisson-fleet.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/caisson-fleet.conf
	$(BIN)/caisson man -q $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 packaging/caisson-agent.8
	install -D -m 644 packaging/caisson-agent.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/caisson-agent
	$(BIN)/caisson completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/caisson
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BIN)/caisson completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_caisson
	$(BIN)/caisson completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/caisson.fish

deb: ## Make the agent's Debian packages for hosts that exist already, amd64 and arm64, in out/
	@for arch in $(ARCHES); do \
	  GOARCH=$$arch $(GO) build -ldflags '$(LDFLAGS) -X main.built=$(BUILT)' -tags nethttpomithttp2 -o $(OUT)/$$arch/caisson-agent ./cmd/caisson-agent && \
	  GO='$(GO)' packaging/hack/deb $(OUT)/$$arch/caisson-agent $$arch '$(VERSION)' '$(BUILT)' $(OUT) || exit; \
	done

release: ## Make a release of a tagged commit in out/release: programs, packages, pages, SBOM, provenance, SHA256SUMS; KEY=release.key signs
	@GO='$(GO)' packaging/hack/release '$(VERSION)' '$(BUILT)' '$(OUT)/release' $(KEY)

deps: ## Install the Debian packages that building layers and testing take
	@packaging/hack/install-deps

test: deps lint build size ## Everything: lint, unit, root, VM and interop tests (as root, some 22 minutes on two cores that do nothing else)
	packaging/hack/scratch $(MAKE) --no-print-directory test-all
	$(MAKE) --no-print-directory test-vm

# Most tests wait more than they compute: twice as many packages as processors run at once.
# What runs with the race detector does not run without it before, but for the longest,
# of which it runs less.
test-all:
	CAISSON_SEQUENCES=$${CAISSON_SEQUENCES-250} CAISSON_REQUIRE=$${CAISSON_REQUIRE-root,tools,net,vm} $(GO) test -vet=off -timeout 60m -p $(ATONCE) $(LONGEST) $$($(EACH) | grep -vxFf <($(GO) list $(RACED)))
	CAISSON_REQUIRE=$${CAISSON_REQUIRE-root,tools,net,vm,cosign} $(MAKE) --no-print-directory --jobs=4 --output-sync test-race test-kube-unit test-interop fuzz FUZZTIME=1s

test-kube-unit: # without an API server
	cd kube && CAISSON_WITHOUT=$${CAISSON_WITHOUT-kube} $(GO) test -vet=off ./...

check: lint ## What a change needs before anything else: lint, and the unit tests but those that need root, a network or seconds each
	CAISSON_WITHOUT=root,net,slow packaging/hack/scratch $(GO) test -short -vet=off -p $(ATONCE) $(UNITS)

test-unit: ## Tests that need neither root nor a network
	$(GO) test $(UNITS)

test-race: ## The race detector where goroutines share something
	CGO_ENABLED=1 $(GO) test -race -vet=off -timeout 60m -p $(ATONCE) $(RACED)

test-vm: ## Boot real machines in QEMU (as root, 10 minutes, and more on a busy machine)
	CAISSON_REQUIRE=$${CAISSON_REQUIRE-root,tools,net,vm} $(GO) test -count=1 -timeout 120m -v ./test/vm/...

test-interop: ## Check our signatures with the real cosign, and its with ours (first run builds both)
	test/interop/cosign.sh
	CAISSON_REQUIRE=$${CAISSON_REQUIRE-tools,cosign} $(GO) test -count=1 -timeout 60m ./test/interop/...

test-kube: ## Tests against a real API server, etcd and controllers of Kubernetes (the first run builds them, some ten minutes)
	kube/hack/servers.sh
	cd kube && CAISSON_REQUIRE=kube $(GO) test -count=1 -timeout 60m -p 1 ./...

test-kube-long: ## The tests of kube/ that begin with require.Long: machines that are Nodes of a real API server (as root; the first run builds it, and a kubelet); PART=K/N as below
	kube/hack/servers.sh --kubelet
	CAISSON_LONG=1 CAISSON_REQUIRE=$${CAISSON_REQUIRE-root,tools,net,vm,kube} $(GO) run ./packaging/hack/long -module kube $(if $(PART),-part $(PART))

test-long: ## Every test that begins with require.Long, and each fuzz target for 30s (as root, hours); PART=3/16 runs a part of at most 40 minutes: see CONTRIBUTING.md
	CAISSON_LONG=1 CAISSON_REQUIRE=$${CAISSON_REQUIRE-root,tools,net,vm} $(GO) run ./packaging/hack/long $(if $(PART),-part $(PART))

lint: ## gofmt, go vet, staticcheck, errcheck
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	@packaging/hack/errcheck
	cd kube && $(GO) vet ./... && "$$(cd .. && $(GO) tool -n staticcheck)" ./...
	@DIR=kube packaging/hack/errcheck

vulncheck: ## Known vulnerabilities in what we link; says so where their database cannot be reached
	@packaging/hack/vulncheck

fuzz: ## Run every fuzz target for FUZZTIME (5s)
	@packaging/hack/fuzz $(FUZZTIME)

bench: ## Measure against named peers in the same run
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./spec/... ./layers/... ./oci/... ./bootagent/... ./builder/... ./oci/trust/... ./fleet/... ./cmd/caisson-agent

bench-peers: ## Put caisson beside what people use (SIDE=nodes|images|updates|formats|polls, RUNS=5, OUT=DIR, with a side PEERS; as root), see docs/benchmark.md
	$(GO) run ./test/peers $(if $(SIDE),-side $(SIDE)) $(if $(RUNS),-runs $(RUNS)) $(if $(OUT),-out $(OUT)) $(PEERS)

container: build kube ## Make the images localhost/caisson and localhost/caisson-kube with podman or buildah (as root)
	@packaging/hack/container $(BIN)

demo: build ## The main job end to end in a VM: build, publish, boot, roll back; KEEP=1 leaves the fleet's page up
	@packaging/hack/install-deps demo
	$(GO) run ./test/vm/demo $(if $(REGISTRY),-registry $(REGISTRY)) $(if $(KEEP),-keep)

measure: ## Count lines, packages, and types and functions that are too large; LIST=1 names them
	@$(GO) run ./packaging/hack/measure $(if $(LIST),-list)

size: build ## The agent's size, held to its budget
	@packaging/hack/size $(BIN)/caisson-agent

cross: ## Compile for arm64
	GOARCH=arm64 $(GO) build -o /dev/null ./cmd/caisson
	GOARCH=arm64 $(GO) build -o /dev/null ./cmd/caisson-agent

clean: ## Remove what was built
	rm -rf bin out
