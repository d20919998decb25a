// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// layout is a copy of what is published by now, as a medium carries it.
func (p *published) layout(name string) string {
	p.t.Helper()
	dir := filepath.Join(p.t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(p.Registry.Ref().Layout)); err != nil {
		p.t.Fatal(err)
	}
	return dir
}

// TestTheNewestMedium: a machine's own disk that carries what it was installed with hides no
// newer stick, wherever the kernel names it, and neither does one of another fleet.
func TestTheNewestMedium(t *testing.T) {
	other := publish(t)
	other.overlay(9, other.layer("other").Overlay.Layer)
	for name, order := range map[string][]int{"the disk first": {0, 1, 2}, "the stick first": {1, 2, 0}, "the other fleet's first": {2, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			p := publish(t)
			p.overlay(1, p.layer("old").Overlay.Layer)
			old := p.layout("disk")
			p.overlay(2, p.layer("new").Overlay.Layer)
			media := []string{old, p.layout("stick"), other.layout("other")}
			p.ways.source = nil
			var list []string
			for _, n := range order {
				list = append(list, media[n])
			}
			a := p.chooser.carriedBest(t.Context(), list)
			found, root, err := a.found, a.root, a.err
			if err != nil || found.Generation.Generation != 2 || root.layer.Images[0].Size != int64(len("new")) {
				t.Fatalf("%+v, %v", found, err)
			}
			if p.ways.source != nil {
				t.Error("the medium is asked from now on")
			}
			// The older one alone is refused then, as the registry's answer would be.
			if err := p.chooser.carriedBest(t.Context(), []string{old, media[2]}).err; refusal.Of(err) != refusal.Rollback {
				t.Errorf("the older medium: %v", err)
			}
		})
	}
}

// TestTheNextMedium: a newer medium whose overlay cannot be read leaves it to the other.
func TestTheNextMedium(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("old").Overlay.Layer)
	old := p.layout("disk")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	p.ways.source = nil
	if a := p.chooser.carriedBest(t.Context(), []string{empty, old}); a.err != nil || a.found.Generation.Generation != 1 {
		t.Errorf("%+v, %v", a.found, a.err)
	}
	if err := p.chooser.carriedBest(t.Context(), []string{empty}).err; err == nil || errors.Is(err, oci.ErrNotFound) {
		t.Errorf("an empty medium: %v", err)
	}
}

// TestASlowMedium: a medium from which nothing comes in time is given up, and the registry is
// asked again.
func TestASlowMedium(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("image").Overlay.Layer)
	p.machine.limits.only = time.Nanosecond
	if a := p.chooser.carriedBest(t.Context(), []string{p.layout("stick")}); !errors.Is(a.err, errSlow) || a.step.Act != decide.FallBack {
		t.Errorf("%s: %v", a.step.Name, a.err)
	}
}
