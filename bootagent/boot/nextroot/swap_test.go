// SPDX-License-Identifier: Apache-2.0

package nextroot

import (
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

func TestClass(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*state.Boot, *Pair)
		class  string
	}{
		"another package": {func(*state.Boot, *Pair) {}, spec.ClassSoftReboot},
		"and a parameter": {func(_ *state.Boot, p *Pair) {
			p.Overlay.Items.Sysctl = []spec.Sysctl{{Key: "vm/swappiness", Value: "1"}}
		}, spec.ClassSoftReboot},
		"and kernel arguments": {func(_ *state.Boot, p *Pair) { p.Overlay.KernelArgs = []string{"quiet"} }, spec.ClassKexec},
		"and persisted paths":  {func(_ *state.Boot, p *Pair) { p.Overlay.Persist = []string{"/home"} }, spec.ClassReboot},
		"another kernel":       {func(_ *state.Boot, p *Pair) { p.Layer.Kernel.Release = "7" }, spec.ClassKexec},
		"no state disk":        {func(b *state.Boot, _ *Pair) { b.Disk = "" }, spec.ClassSoftReboot},
		"paths and arguments": {func(_ *state.Boot, p *Pair) {
			p.Overlay.Persist, p.Overlay.KernelArgs = []string{"/home"}, []string{"quiet"}
		}, spec.ClassKexec},
		"a build and arguments": {func(_ *state.Boot, p *Pair) {
			p.Layer.Kernel.Digest, p.Overlay.KernelArgs = "sha256:other", []string{"quiet"}
		}, spec.ClassKexec},
		"a disk that can be read": {func(b *state.Boot, _ *Pair) { b.ReadOnly = true }, spec.ClassReboot},
		"begun before":            {func(_ *state.Boot, p *Pair) { p.Generation.Attempts = 1 }, spec.ClassReboot},
	} {
		layer := spec.Layer{Arch: "amd64", Packages: []spec.InstalledPackage{{Name: "systemd", Version: "257"}}}
		b, p := &state.Boot{Disk: "/dev/vda1", Layer: layer}, Pair{Overlay: &spec.Overlay{Core: spec.Core{Layer: "b"}}, Layer: &layer}
		next := layer
		p.Layer = &next
		c.change(b, &p)
		if class, why := Class(b, &spec.Overlay{Core: spec.Core{Layer: "a"}}, p); class != c.class || why == "" {
			t.Errorf("%s: %s, %q; want %s", name, class, why, c.class)
		}
	}
}
