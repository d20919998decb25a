// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// What proved itself on a running root alone is on trial in the boot that the registry answered.
// Where a newer one fails, the way back is to what a boot has proved; and where nobody answers,
// the newest runs, as nothing would be told.
func TestWhatNoBootHasProved(t *testing.T) {
	for what, want := range map[string]struct {
		entered, current uint64
		unproven         bool
	}{
		"it is the newest":   {2, 1, true},
		"a newer one failed": {1, 1, false},
		"nobody answers":     {2, 2, false},
	} {
		p := publish(t)
		good := p.layer("good").Overlay.Layer
		p.overlay(1, good)
		p.boots()
		p.comesUp()
		items := spec.Items{Files: []spec.File{{Path: "/etc/nftables.conf"}}}
		p.Overlay(spec.Overlay{Core: spec.Core{Layer: good}, Items: items}, sign.Predicate{Generation: 2})
		if _, err := p.ways.follower().Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := p.disk.folder.Load()
		if err != nil {
			t.Fatal(err)
		}
		live := *s.Staged
		live.Unread = "files /etc/nftables.conf"
		s.Prove(live)
		if err := p.disk.folder.Save(s); err != nil {
			t.Fatal(err)
		}
		if what == "a newer one failed" {
			p.Overlay(spec.Overlay{Core: spec.Core{Layer: good, KernelArgs: []string{"a"}}, Items: items}, sign.Predicate{Generation: 3})
			if _, err := p.ways.follower().Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s, err = p.disk.folder.Load(); err != nil {
				t.Fatal(err)
			}
			s.Staged.Attempts = state.MaxAttempts
			if err := p.disk.folder.Save(s); err != nil {
				t.Fatal(err)
			}
		}
		p.attempt.unproven, p.ways.heard = false, false
		if what == "nobody answers" {
			p.ways.source = nil
			if _, _, err := p.chooser.fallBack(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.begin()
		} else {
			p.boots()
		}
		if s, err = p.disk.folder.Load(); err != nil {
			t.Fatal(err)
		}
		if got := p.notes.of.Generation; got != want.entered || s.Current.Generation != want.current || p.attempt.unproven != want.unproven {
			t.Errorf("%s: entered %d, unproven %v, current %+v, staged %+v", what, got, p.attempt.unproven, s.Current, s.Staged)
		}
		if what == "it is the newest" && (s.Staged.Generation != 2 || s.Staged.Attempts != 1 || s.Staged.Unread != "") {
			t.Errorf("%s: staged %+v", what, s.Staged)
		}
	}
}
