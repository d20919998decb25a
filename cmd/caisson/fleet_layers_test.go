// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/service"
	"github.com/caisson-os/caisson/oci/sign"
)

// TestFleetLayers: the fleet's service compares layers that the site's release keys
// signed, and no others; a name that is not a digest leads nowhere.
func TestFleetLayers(t *testing.T) {
	s := newShelf(t)
	t.Chdir(t.TempDir())
	if _, err := s.run("keys", "generate", filepath.Join("keys", "operator")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"keys/release.pub": string(sign.VerifierOf(s.release).PEM()),
		"site.yaml": "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: test}\nlayer: {base: {debian: {suite: trixie}}}\ntrust: {keys: {operator: keys/operator.pub, release: keys/release.pub}}\nnodes: [{name: a}]\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := s.put("1", "2026-01-01T00:00:00Z", map[string]string{"a": "x"}, "bash=5")
	if out, err := s.run("publish", "site.yaml", "--layer", one, "--to", s.ref, "--key", "keys/operator.key"); err != nil {
		t.Fatal(err, out)
	}
	two := s.put("2", "2026-01-02T00:00:00Z", map[string]string{"a": "y"}, "bash=6")
	var out bytes.Buffer
	a, v := newApp(&out, &out), &serving{from: s.ref}
	v.look.whom.site = []string{"site.yaml"}
	now := v.reader(a)
	table := service.NewLayers(now.Layer)
	if _, err := table.Between(t.Context(), one, two); err == nil {
		t.Error("compared before what is published was read")
	}
	if _, err := now.Index(t.Context(), ""); err != nil {
		t.Fatal(err, out.String())
	}
	d, err := table.Between(t.Context(), one, two)
	if err != nil || len(d.Packages) != 1 || d.Packages[0].To != "6" {
		t.Fatalf("%+v %v", d, err)
	}
	if s.p.Release, err = sign.Generate(); err != nil {
		t.Fatal(err)
	}
	three := s.put("3", "2026-01-03T00:00:00Z", map[string]string{"a": "z"}, "bash=7")
	if d, err := table.Between(t.Context(), one, three); err == nil {
		t.Errorf("a stranger's layer is compared: %+v", d)
	}
	if _, err := table.Between(t.Context(), one, "current"); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("a tag is followed: %v", err)
	}
}
