# CodeForge: `make up` runs it, `make test` tests it. Recipes longer than a line are scripts in make/.

GO      ?= go
BIN     := bin
DENO    := .tools/deno
UV      := .tools/uv
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MODULE  := github.com/codeforge-mcp/codeforge
LDFLAGS := -s -w -X $(MODULE)/internal/version.Version=$(VERSION)

# One line per binary: its name, and the folder of its main package.
BINARIES := codeforge egress-proxy sandboxd mcp-server docker-shim mcp-bridge
codeforge_DIR    := cli/cmd/codeforge
egress-proxy_DIR := proxy/cmd/egress-proxy
sandboxd_DIR     := sandbox-image/cmd/sandboxd
mcp-server_DIR   := mcp-server/cmd/mcp-server
docker-shim_DIR  := mcp-server/cmd/docker-shim
mcp-bridge_DIR   := mcp-server/cmd/mcp-bridge

.DEFAULT_GOAL := help
.PHONY: help build binaries deno typescript uv cli up down test test-all e2e attack faults clients s3 bench bench-tokens bench-search word-vectors documents fuzz lint words site clean uninstall mutants

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: binaries deno typescript uv ## build every binary into bin/, and fetch Deno, TypeScript and uv into .tools/

binaries:
	@GO='$(GO)' make/build.sh '$(LDFLAGS)' $(foreach b,$(BINARIES),./$($(b)_DIR))

deno:
	@make/deno.sh $(DENO)

typescript:
	@make/typescript.sh .tools/typescript

uv:
	@make/uv.sh $(UV)

cli: ## build codeforge alone into bin/, for any system with Go: it finds CodeForge in Docker, and needs nothing else
	@GO='$(GO)' make/build.sh '$(LDFLAGS)' ./$(codeforge_DIR)

up: ## start CodeForge: in Docker if an engine is running, else embedded (MODE=docker|embedded forces one)
	@MAKE='$(MAKE)' make/up.sh

down: ## stop CodeForge; skills, state and the CA are kept
	@make/down.sh

test: build ## run unit tests, then end-to-end tests in both modes (PARTS=unit|embedded|docker)
	@GO='$(GO)' make/test.sh $(PARTS)

test-all: build ## make test with the race detector everywhere, every test in every mode, and ten minutes of fuzzing
	@CODEFORGE_TEST_ALL=1 GO='$(GO)' make/test.sh

e2e: build ## run end-to-end tests only (CODEFORGE_E2E_MODE=embedded|docker)
	@cd e2e && $(GO) test -count=1 -timeout 30m ./...

attack: build ## run the attacks of SECURITY.md, then again with single defences switched off, and print tables
	@cd e2e && $(GO) test -count=1 -p 1 -timeout 30m -v ./attack/... ./negative/...

faults: build ## cause 25 kinds of fault while four clients run code, embedded, for FAULTS (15m)
	@cd e2e && CODEFORGE_FAULTS=$${FAULTS:-15m} CODEFORGE_E2E_MODE=embedded $(GO) test -count=1 -timeout 90m -run TestFaults -v ./faults

clients: build ## start Claude Code, Gemini CLI, Codex and opencode with the files of codeforge connect (600 MB from npm)
	@cd e2e && CODEFORGE_CLIENTS=1 CODEFORGE_E2E_MODE=embedded $(GO) test -count=1 -timeout 20m -run TestClientFiles -v .

s3: build ## run AWS's SDK in the sandbox against an S3 server, which takes minutes to build
	@cd e2e && CODEFORGE_S3=1 $(GO) test -count=1 -timeout 60m -v ./providers -run TestS3

kubernetes: build ## build one node of Kubernetes, and run on it the chart, the main job and all attacks, as root
	@CODEFORGE_ATTACK="$${CODEFORGE_ATTACK-.}" .ci/k8s/test

bench: build ## measure the tables of docs/contribute/performance.md on this machine (BENCH_QUICK=1: in about three minutes)
	@GO='$(GO)' make/bench.sh

bench-tokens: build ## count what a model reads to find operations of real APIs, and how often it finds the right one
	@GO='$(GO)' make/tokens.sh

bench-search: build ## print how many of a hundred questions the search over operations answers (CODEFORGE_RELEASE=1: the blind ones too)
	@GO='$(GO)' make/search.sh

word-vectors: ## train the vectors of words of the search again, from npm and PyPI (15 minutes on a quiet core)
	@make/word-vectors.sh

documents: build ## import every document of a public directory of APIs, and compile the types of all operations (ten minutes)
	@cd e2e && CODEFORGE_DOCUMENTS=all CODEFORGE_E2E_MODE=embedded $(GO) test -count=1 -timeout 120m -run TestDocuments -v ./typed

mutants: ## change single places of the code, and print which changes no test notices (SEED=1 N=20 FOR=0 PACKAGES=. DEPENDANTS=2 RESULTS=file)
	@cd e2e && . ../make/goflags.sh && $(GO) run ./mutants -seed $${SEED:-1} -n $${N:-20} -for $${FOR:-0} -packages "$${PACKAGES:-.}" -dependants $${DEPENDANTS:-2} -results "$$RESULTS"

fuzz: ## run every fuzz target for FUZZTIME (5s)
	@make/fuzz.sh

lint: ## run golangci-lint, gofmt, go mod tidy and shellcheck
	@make/lint.sh

words: ## measure names, comments, messages and documentation against their ceilings
	@cd e2e && $(GO) run ./words

site: ## build docs/ as a site with search in bin/site (MkDocs from PyPI)
	@make/site.sh

clean: ## remove the output of build and bench; state and skills are kept
	rm -rf $(BIN) .tools bench/out

uninstall: ## list everything that CodeForge has put on this machine, ask, and remove it (YES=1: do not ask)
	@make/uninstall.sh
