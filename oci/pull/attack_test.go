// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// read gets the manifests and images of a world by some rules, without hashing the
// images.
func read(t *testing.T, row attack.Row, rules registryRules) error {
	t.Helper()
	w := row.Forge(t)
	s, err := openRegistry(oci.Ref{Host: w.Serve(t), Prefix: "metal-a"}, Options{PlainHTTP: true}, rules)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := s.Manifest(ctx, oci.RepoNode, "superhost", ""); err != nil {
		return err
	}
	if row.Serve == "manifest endless" {
		return nil // it came through
	}
	r, err := s.Manifest(ctx, oci.RepoLayer, w.LayerDigest, "")
	if err != nil {
		return err
	}
	m, err := oci.ParseManifest(r.Data)
	if err != nil {
		return err
	}
	for _, d := range m.Layers {
		if err := readTwice(ctx, s, d); err != nil {
			return err
		}
	}
	return nil
}

// readTwice reads a blob from its start and, where that is cut, from its middle.
func readTwice(ctx context.Context, s oci.Source, d oci.Descriptor) error {
	body, err := s.Blob(ctx, oci.RepoLayer, d, 0)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, body)
	body.Close()
	if n == d.Size {
		return nil
	}
	if n == 0 {
		return errors.Join(err, errors.New("nothing came"))
	}
	if body, err = s.Blob(ctx, oci.RepoLayer, d, n); err != nil {
		return err
	}
	defer body.Close() // the test is over
	_, err = io.Copy(io.Discard, body)
	return err
}

// TestAttacks runs the rows that this package must refuse, and the controls.
func TestAttacks(t *testing.T) {
	for _, row := range attack.Load(t) {
		if row.Refuses() && row.Of() != "pull" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			err := read(t, row, wholeRegistry)
			if got := refusal.Of(err); got != refusal.Code(row.Code) || !row.Refuses() && err != nil {
				t.Errorf("code %q, want %q: %v", got, row.Code, err)
			}
		})
	}
}

// noRow lists the checks that refuse nothing or that need TLS; both have tests
// of their own.
var noRow = map[string]string{
	"status":    "tells failures apart, refuses nothing: TestStatus",
	"few":       "an endless redirect is a failure: TestRedirects",
	"stays TLS": "needs certificates: TestRedirects",
}

// TestNoCheckIsVacuous takes each check out in turn, and wants every row that
// names it to fail, and every check to have a row.
func TestNoCheckIsVacuous(t *testing.T) {
	rows := map[string][]attack.Row{}
	for _, r := range attack.Load(t) {
		if pkg, name, _ := strings.Cut(r.Check, "/"); pkg == "pull" {
			rows[name] = append(rows[name], r)
		}
	}
	w := wholeRegistry
	names := slices.Concat(w.manifest.Names(), w.blob.Names(), w.body.Names(), w.redirect.Names())
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if noRow[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if len(rows[name]) == 0 {
				t.Fatal("no attack names this check")
			}
			rules := registryRules{
				manifest: w.manifest.Without(name), blob: w.blob.Without(name), body: w.body.Without(name), redirect: w.redirect.Without(name),
			}
			for _, r := range rows[name] {
				if err := read(t, r, rules); refusal.Of(err) == refusal.Code(r.Code) {
					t.Errorf("%s: refused as %s all the same: %v", r.Name, r.Code, err)
				}
			}
		})
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("attacks name the check %q, which is none of this package", name)
	}
}
