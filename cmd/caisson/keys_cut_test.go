// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// A rotation that was cut before fleet:current names its version is ended by the next run,
// also where a run between them brought the version into caisson.keys and was cut as well.
func TestRotationCutTwice(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	at := "oci:" + path("out")
	site := func(operator string) {
		t.Helper()
		text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nregistry: " + at +
			"\nattached: true\ntrust: {keys: {root: root.pub, operator: " + operator + ".pub}}\nnodes: [{name: a}]\n"
		if err := os.WriteFile(path("site.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		var talk bytes.Buffer
		cmd := newApp(io.Discard, &talk).root()
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, &talk)
		}
		return talk.String()
	}
	for _, name := range []string{"root", "one", "two"} {
		run("keys", "generate", path(name))
	}
	site("one")
	run("keys", "rotate", path("site.yaml"))
	run("publish", path("site.yaml"))
	reg, err := registry.Open(at, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := reg.Source().Manifest(t.Context(), oci.RepoFleet, "current", "")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.ReadFile(path("caisson.memory"))
	if err != nil {
		t.Fatal(err)
	}
	site("two")
	run("keys", "rotate", path("site.yaml"))

	// As it is where both runs are cut: version 2 is published and beside the site.
	if _, err := reg.PutManifest(t.Context(), oci.RepoFleet, oci.MediaTypeManifest, before.Data, "current"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("caisson.memory"), memory, 0o644); err != nil {
		t.Fatal(err)
	}
	if said := run("keys", "rotate", path("site.yaml")); strings.Contains(said, "nothing to do") {
		t.Error(said)
	}
	current, err := trust.Current(t.Context(), reg.Source(), "")
	if err != nil {
		t.Fatal(err)
	}
	var doc spec.Fleet
	if err := spec.Decode(current.Document, &doc); err != nil || doc.KeysVersion != 2 {
		t.Errorf("fleet:current names version %d of the keys, %v", doc.KeysVersion, err)
	}
	if said := run("keys", "rotate", path("site.yaml")); !strings.Contains(said, "nothing to do") {
		t.Error(said)
	}
	run("verify", at, "--site", path("site.yaml"))
}
