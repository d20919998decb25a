// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

// read gets the documents of a world by some rules, and hashes them, and trusts
// nothing else.
func read(t *testing.T, row attack.Row, rules oci.Rules) error {
	t.Helper()
	w := row.Forge(t)
	switch row.Serve {
	case "parse":
		_, err := rules.ParseManifest(w.Manifest)
		return err
	case "parse index":
		_, err := rules.ParseIndex(w.LayerManifest)
		return err
	}
	s, err := pull.Open(oci.Ref{Host: w.Serve(t), Prefix: "metal-a"}, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r, err := s.Manifest(ctx, oci.RepoNode, "superhost", "")
	if err != nil {
		return err
	}
	if _, _, err := rules.ReadDocument(ctx, s, r, oci.Artifact{Repo: oci.RepoNode, Type: oci.TypeOverlay, Limit: oci.MaxOverlay}); err != nil {
		return err
	}
	if r, err = s.Manifest(ctx, oci.RepoLayer, w.LayerDigest, ""); err != nil {
		return err
	}
	m, err := rules.ParseManifest(r.Data)
	if err != nil {
		return err
	}
	_, err = rules.ReadBlob(ctx, s, oci.RepoLayer, m.Config, oci.MaxConfig)
	return err
}

// TestAttacks runs the rows that this package must refuse, and the controls.
func TestAttacks(t *testing.T) {
	for _, row := range attack.Load(t) {
		if row.Refuses() && row.Of() != "oci" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			err := read(t, row, oci.Whole)
			if got := refusal.Of(err); got != refusal.Code(row.Code) || !row.Refuses() && err != nil {
				t.Errorf("code %q, want %q: %v", got, row.Code, err)
			}
		})
	}
}

// noRow lists the checks that refuse nothing themselves.
var noRow = map[string]string{
	"descriptors": "runs the checks of descriptors, each of which has rows",
}

// TestNoCheckIsVacuous takes each check out in turn, and wants every row that
// names it to fail, and every check to have a row.
func TestNoCheckIsVacuous(t *testing.T) {
	rows := map[string][]attack.Row{}
	for _, r := range attack.Load(t) {
		if pkg, name, _ := strings.Cut(r.Check, "/"); pkg == "oci" {
			rows[name] = append(rows[name], r)
		}
	}
	for _, name := range oci.Whole.Names() {
		if noRow[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if len(rows[name]) == 0 {
				t.Fatal("no attack names this check")
			}
			for _, r := range rows[name] {
				if err := read(t, r, oci.Whole.Without(name)); refusal.Of(err) == refusal.Code(r.Code) {
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
