// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// A publisher that was away for longer than one walk goes catches up, and keeps what it could
// have where a later version is not to be had.
func TestKeysPullFarBehind(t *testing.T) {
	require.Slow(t)
	root, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	operator, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	public := func(k *ecdsa.PrivateKey) []string { return []string{string(sign.VerifierOf(k).PEM())} }
	doc := spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: "metal", Version: 1, At: time.Unix(0, 0).UTC(),
		Roles: spec.Roles{Root: spec.Role{Keys: public(root), Threshold: 1}, Operator: spec.Role{Keys: public(operator), Threshold: 1}}}
	var all []trust.Candidate
	for range 1 + chain.MaxSteps + 45 {
		c, err := rotate.SignKeys(doc, []crypto.Signer{root})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		doc.Version, doc.Previous = doc.Version+1, oci.Digest(c.Document)
	}
	for name, c := range map[string]struct {
		newest, has int
		cut         bool
	}{
		"as far as one walk goes": {newest: 1 + chain.MaxSteps, has: 1 + chain.MaxSteps},
		"further":                 {newest: len(all), has: len(all)},
		"further, and cut":        {newest: len(all), has: 280, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			at := "oci:" + filepath.Join(dir, "out")
			for file, data := range map[string][]byte{
				"root.pub": sign.VerifierOf(root).PEM(), "operator.pub": sign.VerifierOf(operator).PEM(),
				"site.yaml": []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nregistry: " + at +
					"\nattached: true\ntrust: {keys: {root: root.pub, operator: operator.pub}}\nnodes: [{name: a}]\n"),
				"caisson.keys": append(all[0].SaveKeys(), '\n'),
			} {
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			reg, err := registry.Open(at, registry.Options{})
			if err != nil {
				t.Fatal(err)
			}
			batch, err := reg.Batch()
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range all[:c.newest] {
				if err := putKeys(t.Context(), reg, c, uint64(i+1)); err != nil {
					t.Fatal(err)
				}
			}
			if c.cut {
				forged := all[280]
				forged.Bundles = all[0].Bundles
				if err := putKeys(t.Context(), reg, forged, 281); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(batch.Flush(), batch.Close()); err != nil {
				t.Fatal(err)
			}
			var talk bytes.Buffer
			cmd := newApp(io.Discard, &talk).root()
			cmd.SetArgs([]string{"keys", "pull", filepath.Join(dir, "site.yaml")})
			if err := cmd.ExecuteContext(t.Context()); (err != nil) != c.cut {
				t.Errorf("%v\n%s", err, &talk)
			}
			kept, err := chain.ReadFile(filepath.Join(dir, "caisson.keys"))
			if err != nil || kept.Version() != uint64(c.has) {
				t.Errorf("version %d is kept, %v", kept.Version(), err)
			}
		})
	}
}

// putKeys puts a version of the keys into a registry.
func putKeys(ctx context.Context, reg *registry.Registry, c trust.Candidate, version uint64) error {
	manifest, blobs := oci.DocumentManifest(oci.TypeKeys, c.Document, c.Bundles...)
	for _, b := range blobs {
		if err := reg.PutData(ctx, oci.RepoFleet, b); err != nil {
			return fmt.Errorf("version %d: %w", version, err)
		}
	}
	_, err := reg.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, manifest, trust.KeysTag(version))
	return err
}
