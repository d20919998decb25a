// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/node"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// mishap is a row of the catalogue in docs/faults.md that is run twice: as it is, and
// with what protects the node from it undone, which must not end well.
type mishap struct {
	happens func(v *victim, protected bool)
	ends    uint64 // generation that runs, whole
	says    string // on the console, or in the status
	why     string // in what why says of it; "" where nothing is wrong any more
}

var faults = map[string]mishap{
	"a new generation never comes up": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.publish(2, "b", 0)
		v.diesThrice(protected)
		v.do("boot")
	}, 1, "it never came up", "generation 2 is rejected on this node"},
	"an image that is whole and empty": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.publish(2, "", 0)
		v.diesThrice(protected)
		v.do("boot")
	}, 1, "it never came up", "generation 2 is rejected on this node"},
	"the counter of an earlier generation": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.publish(2, "b", 0)
		v.diesThrice(true)
		v.publish(3, "c", 0)
		v.dies()
		if !protected { // it inherits what was counted for the one before
			v.edits(func(s *state.State) { s.Staged.Attempts = state.MaxAttempts })
		}
		v.do("boot")
	}, 3, "generation 3", ""},
	"a layer fails its checks": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.publish(2, "b", never)
		v.do("boot,judge")
		v.forgetsVerdict(protected)
		v.do("boot")
	}, 1, "it was rejected on this node: ready: the file is not there", `"reason":"ready: the file is not there"`},
	"an overlay fails its checks": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.publish(2, "a", never)
		v.do("sync,judge")
		v.forgetsVerdict(protected)
		v.do("sync")
	}, 1, "generation 2 did not pass its gates: ready: the file is not there; generation 1 is in effect again", `"reason":"ready: the file is not there"`},
	"the layer of the last generation rots, without a network": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.runs(2, "b")
		v.rots("b")
		if v.dead = true; !protected {
			v.edits(func(s *state.State) { s.Previous, s.Earlier = nil, nil })
		}
		v.do("boot")
	}, 1, "booting the last good overlay, generation 1", "the last good generation cannot run: generation 2: " + digest.Of([]byte(imageOf("b")))},
	"the registry is dead": {func(v *victim, protected bool) {
		v.runs(1, "a")
		if v.dead = true; !protected {
			v.edits(func(s *state.State) { s.Current, s.Previous, s.Earlier = nil, nil, nil })
		}
		v.do("boot")
	}, 1, "unreachable: no route to host", `"reason":"no route to host"`},
	"the registry has an older generation": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.runs(2, "b")
		v.publish(1, "a", 0)
		if !protected {
			v.edits(func(s *state.State) { s.Floor, s.AtFloor = spec.Floor{}, "" })
		}
		v.do("boot")
	}, 2, "refused:", `"code":"rollback"`},
	"one copy of the memory is torn": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.tears("state.json")
		if v.dead = true; !protected {
			v.tears("state.copy.json")
			v.loses("overlays")
		}
		v.do("boot")
	}, 1, "booting the last good overlay, generation 1", "state.json: its checksum is wrong"},
	"the memory is lost": {func(v *victim, protected bool) {
		v.runs(1, "a")
		v.tears("state.json")
		v.tears("state.copy.json")
		if v.dead = true; !protected {
			v.loses("overlays")
		}
		v.do("boot")
	}, 1, "booting the last good overlay, generation 1", "state.copy.json: its checksum is wrong"},
}

// Each fault ends well, by itself, through its protection, and says what it was.
func TestFaults(t *testing.T) {
	require.Slow(t)
	for name, f := range faults {
		for _, protected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, protected %v", name, protected), func(t *testing.T) {
				v := newVictim(t)
				u := &unwell{t}
				v.t, v.ill = u, true
				if !protected {
					v.tries = 4
				}
				err := u.ends(func() { f.happens(v, protected) })
				if err == nil {
					err = v.endsAs(f)
				}
				switch {
				case protected && err != nil:
					t.Errorf("%v\n%s", err, v.all())
				case !protected && err == nil:
					t.Error("without its protection the node is well, too: it protects from nothing, or this tests nothing")
				}
			})
		}
	}
}

// endsAs holds that the node runs what a fault ends with, and said so.
func (v *victim) endsAs(f mishap) error {
	value, err := os.ReadFile(v.root + swappiness)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(value)); got != fmt.Sprint(f.ends) {
		return fmt.Errorf("the setting is that of generation %s, want %d", got, f.ends)
	}
	if !strings.Contains(v.all(), f.says) {
		return fmt.Errorf("nothing says %q", f.says)
	}
	var why spec.Why
	if _, err := v.node(func(ctx context.Context, n *node.Node) (_ *spec.Status, err error) {
		why, err = n.Why(ctx)
		return nil, err
	}); err != nil {
		return err
	}
	told, err := json.Marshal(why.Findings)
	switch {
	case err != nil:
		return err
	case why.Well != (f.why == "") || !strings.Contains(string(told), f.why):
		return fmt.Errorf("why says %s, want %q in it", told, f.why)
	}
	return nil
}

// unwell ends a fault that did not end well, instead of the test.
type unwell struct{ testing.TB }

func (u *unwell) Fatal(args ...any)                 { u.Fatalf("%s", fmt.Sprint(args...)) }
func (u *unwell) Fatalf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }

func (u *unwell) ends(do func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			var is bool
			if err, is = r.(error); !is {
				panic(r)
			}
		}
	}()
	do()
	return nil
}

// dies is a boot that ends before the agent runs.
func (v *victim) dies() {
	if _, err := v.loader(); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) diesThrice(counted bool) {
	for range state.MaxAttempts {
		if v.dies(); !counted {
			v.edits(func(s *state.State) { s.Staged.Attempts = 0 })
		}
	}
}

// forgetsVerdict undoes that what failed is remembered, where it is not protected.
func (v *victim) forgetsVerdict(protected bool) {
	if !protected {
		v.edits(func(s *state.State) { s.Retry() })
	}
}

func (v *victim) edits(change func(*state.State)) {
	folder, err := state.Open(v.root + paths.State)
	if err != nil {
		v.t.Fatal(err)
	}
	s, err := folder.Load()
	if err != nil {
		v.t.Fatal(err)
	}
	if change(s); folder.Save(s) != nil {
		v.t.Fatal("the state cannot be written")
	}
}

// rots changes a byte of a layer's image.
func (v *victim) rots(layer string) {
	name := v.root + paths.State + "/store/sha256/" + digest.Hex(digest.Of([]byte(imageOf(layer))))
	data, err := os.ReadFile(name)
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) tears(name string) {
	if err := os.Truncate(v.root+paths.State+"/"+name, 40); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) loses(name string) {
	if err := os.RemoveAll(v.root + paths.State + "/" + name); err != nil {
		v.t.Fatal(err)
	}
}
