// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// A loader reaches its registry by the credentials of the newest overlay that its disk has, as
// long as that is signed; one that has none of that goes on without.
func TestALoaderHasTheCredentialsOfItsDisk(t *testing.T) {
	p := publish(t)
	p.disk.device, p.ways.secretDir = "/dev/vda1", filepath.Join(t.TempDir(), "secret")
	key, err := secrets.Keys{State: p.disk.folder.Path()}.Ensure(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	layer := p.layer("image").Overlay.Layer
	p.overlay(1, layer) // which makes the node trust the fleet
	p.Overlay(spec.Overlay{Core: spec.Core{Layer: layer}, Agent: &spec.Agent{Credentials: &spec.Credentials{Registry: "pull"}},
		Secrets: []spec.Secret{fixture.Seal(t, "pull", key.Recipient(), "let me in")}}, sign.Predicate{Generation: 2})
	if got := p.boots(); got != 2 {
		t.Fatalf("generation %d", got)
	}
	p.comesUp()
	s, err := p.disk.folder.Load()
	if err != nil {
		t.Fatal(err)
	}
	dir := p.ways.ownSecrets(s)
	if data, err := os.ReadFile(filepath.Join(dir, "auth.json")); dir == "" || string(data) != "let me in" {
		t.Fatalf("%q: %q, %v", dir, data, err)
	}
	if left, _ := filepath.Glob(filepath.Join(p.ways.secretDir, "*")); len(left) != 1 {
		t.Errorf("it opened %q", left)
	}
	p.disk.device = ""
	if dir := p.ways.ownSecrets(s); dir != "" {
		t.Errorf("without a disk: %q", dir)
	}
	p.disk.device = "/dev/vda1"
	if dir := p.ways.ownSecrets(&state.State{}); dir != "" {
		t.Errorf("without an overlay: %q", dir)
	}
	files, err := filepath.Glob(p.disk.folder.Path("overlays", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err == nil {
			at := bytes.Index(data, []byte(`"data":"eyJhcGlWZXJzaW9u`)) + 300 // in the document, in base64
			data[at] = map[bool]byte{true: 'B', false: 'A'}[data[at] == 'A']
			err = os.WriteFile(name, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if dir := p.ways.ownSecrets(s); dir != "" {
		t.Errorf("of an overlay that somebody has changed: %q", dir)
	}
}
