// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/release"
)

// layerHelp explains how a layer is named on the command line.
const layerHelp = "LAYER is REF, REF@VERSION or REF@sha256:DIGEST, or REF/layer:VERSION as other tools have it; REF is\n" +
	"host[:port]/prefix or oci:DIR, the version is 'current' when none is given."

// noKey is what verbs say that show layers and verify none.
const noKey = "no --key: who released this is not verified, whoever can push chose it"

const releaseKeyHelp = "public key `FILE` that must have released what is read; several are possible"

// What nothing would be verified with is refused: its result would be taken for verified.
var (
	errReleaseKey = cli.Usage("--trust names an operator's public key, --site the site", "--key names a release key's public half, which signs layers: what is published for nodes is not verified with it")
	errOperators  = cli.Usage("--key names a release key's public half", "--site and --trust name operators, who sign what nodes have: a layer is not verified with them")
)

// openLayers opens what LAYER names: one layer, or all variants of a version.
func openLayers(ctx context.Context, reach *access, name string) ([]release.Layer, error) {
	ref, version, err := release.ParseName(name)
	if err != nil {
		return nil, err
	}
	reg, err := reach.existing(ref)
	if err != nil {
		return nil, err
	}
	return release.Open(ctx, reg, version)
}
