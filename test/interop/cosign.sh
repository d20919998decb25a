#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the two cosigns that the interop tests run against, once, into
# ${XDG_CACHE_HOME:-~/.cache}/caisson/cosign. It takes some minutes on two cores.
set -eu
cache=${XDG_CACHE_HOME:-$HOME/.cache}/caisson/cosign
build() {
	[ -x "$cache/$1/cosign" ] && return
	echo "building $2@$3 into $cache/$1" >&2
	(cd / && CGO_ENABLED=0 GOFLAGS=-trimpath GOBIN="$cache/$1" nice go install -ldflags '-s -w' "$2@$3")
}
build v2 github.com/sigstore/cosign/v2/cmd/cosign v2.6.5
build v3 github.com/sigstore/cosign/v3/cmd/cosign v3.1.3
