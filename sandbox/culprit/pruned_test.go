// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// Of a generation that cannot be had any more, whatever of it is gone, the neighbours say which change it was. The
// search is interrupted in each machine, and then goes on where it was.
func TestPruned(t *testing.T) {
	t.Parallel()
	const gone, fault = 2, 4 // by number from 0
	for what, of := range map[string]func(k *sandbox.Kept, n *Node) string{
		"layer":                    func(k *sandbox.Kept, _ *Node) string { return k.Layer.Digest },
		"description of the layer": func(k *sandbox.Kept, _ *Node) string { return k.Layer.Manifest.Config.Digest },
		"overlay":                  func(_ *sandbox.Kept, n *Node) string { return n.kept[gone].Node.Overlay },
	} {
		t.Run(what, func(t *testing.T) {
			f := newShelf(t)
			for i := range 6 {
				n := strconv.Itoa(i)
				f.publish(t, fixture.Overlay(func(o *spec.Overlay) { o.Items.Sysctl[0].Value = n }), pushed(t, f.registry, n, map[string]string{"packages": n}), publish.By{})
			}
			n := f.node(t, "")
			n.then = map[string]Past{}
			if err := n.open(t.Context()); err != nil {
				t.Fatal(err)
			}
			k, err := n.read(t.Context(), gone)
			if err != nil {
				t.Fatal(err)
			}
			f.remove(t, of(k, n))
			var cut context.CancelFunc
			boots, tried := 0, map[string]int{}
			n.boot = func(ctx context.Context, k *sandbox.Kept) (Answer, error) {
				if boots++; boots%2 == 1 {
					cut()
					return Answer{}, ctx.Err()
				}
				value, err := strconv.Atoi(k.Overlay.Items.Sysctl[0].Value)
				if err != nil {
					t.Error(err)
				}
				if tried[k.Layer.Version+" "+k.Overlay.Items.Sysctl[0].Value]++; value >= fault {
					return Answer{Bad, "the fault is there"}, nil
				}
				return Answer{Outcome: Good}, nil
			}
			var r *Result
			err = context.Canceled
			for q := (Question{Good: "1", Cache: t.TempDir()}); errors.Is(err, context.Canceled) && boots < 100; {
				var ctx context.Context
				ctx, cut = context.WithCancel(t.Context())
				n.kept = nil
				r, err = n.Find(ctx, q, t.Logf)
				cut()
			}
			if err != nil || r.Good != "0-4" || r.Bad != "0-5" || len(r.Parts) != 1 || r.Parts[0].Name != "sysctl/vm.swappiness" {
				t.Fatalf("%+v, %v", r, err)
			}
			for which, times := range tried {
				if times > 2 { // what was found is confirmed
					t.Errorf("%s: %d times", which, times)
				}
			}
		})
	}
}

// What is gone beside the fault may be it, and is named.
func TestPrunedFault(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	for i := range 4 {
		n := strconv.Itoa(i)
		f.publish(t, fixture.Overlay(func(o *spec.Overlay) { o.Items.Sysctl[0].Value = n }), pushed(t, f.registry, n, nil), publish.By{})
	}
	n := f.node(t, "")
	n.then = map[string]Past{}
	if err := n.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.remove(t, n.kept[2].Node.Layer)
	n.kept = nil
	n.boot = func(_ context.Context, k *sandbox.Kept) (Answer, error) {
		if k.Overlay.Items.Sysctl[0].Value >= "2" {
			return Answer{Bad, "the fault is there"}, nil
		}
		return Answer{Outcome: Good}, nil
	}
	r, err := n.Find(t.Context(), Question{Good: "1", Cache: t.TempDir()}, t.Logf)
	if err != nil || r.Good != "0-2" || r.Bad != "0-4" || !slices.Equal(r.Skipped, []string{"0-3"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// remove removes a blob, as a registry does that was pruned too far.
func (f *shelf) remove(t *testing.T, digest string) {
	t.Helper()
	removed := 0
	err := filepath.WalkDir(f.dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == strings.TrimPrefix(digest, "sha256:") {
			removed++
			err = os.Remove(name)
		}
		return err
	})
	if err != nil || removed == 0 {
		t.Fatalf("%d files of %s are removed: %v", removed, digest, err)
	}
}
