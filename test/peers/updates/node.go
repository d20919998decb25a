// SPDX-License-Identifier: Apache-2.0

package updates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
)

// Fetch brings a layer into the store of a node, as the node itself does: args are the store, the
// registry, the layer's digest, and those of layers that are there and may share something.
func Fetch(args []string) error {
	if len(args) < 3 {
		return errors.New("a store, a registry and a digest are needed")
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	store, err := layers.OpenStore(args[0])
	if err != nil {
		return err
	}
	ref, err := oci.ParseRef(args[1])
	if err != nil {
		return err
	}
	source, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		return err
	}
	s := stage.Stager{Store: store, From: source, Kept: args[3:], Talk: time.Minute, Say: func(format string,
		args ...any) {
		fmt.Printf(format+"\n", args...)
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return s.Layer(ctx, args[2], spec.Bootstrap{Fleet: fleet})
}

// digestIn returns the digest of a layer in what `caisson build` prints.
func digestIn(printed []byte) (string, error) {
	for line := range strings.Lines(string(printed)) {
		if digest, name, _ := strings.Cut(strings.TrimSpace(line), "  "); name == "default" && oci.ValidDigest(digest) {
			return digest, nil
		}
	}
	return "", fmt.Errorf("no digest of a layer in %q", printed)
}
