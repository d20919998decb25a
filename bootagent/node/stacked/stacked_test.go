// SPDX-License-Identifier: Apache-2.0

package stacked

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// layer is the digest of a layer that is named by one letter.
func layer(name string) string { return "sha256:" + strings.Repeat(name, 64) }

// newRoot returns a root that is made of layer a.
func newRoot(t *testing.T, mode spec.Mode) (*Root, string) {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, store := filepath.Join(t.TempDir(), "boot.json"), t.TempDir()
	boot := &record.Boot{Mode: mode, RootID: "r", Generation: state.Generation{Layer: layer("a")}}
	boot.Layer.Version = "1"
	return &Root{Dir: t.TempDir(), ID: "r", Alone: true, Owner: record.New(folder, boot, file), Say: t.Logf,
		Store: func() (*layers.Store, error) { return layers.OpenStore(store) }}, file
}

// A root can have what differs in accounts from the layer that it is made of, as long as it is the
// same root, and whatever generation it goes by meanwhile.
func TestLayersHere(t *testing.T) {
	r, file := newRoot(t, "netboot")
	for name, b := range map[string]*Beside{"b": {Root: "r", Version: "2"}, "c": {Root: "another", Version: "3"}} {
		if err := r.keepBeside(layer(name), b); err != nil {
			t.Fatal(err)
		}
	}
	g := func(n uint64, name string) *state.Generation {
		return &state.Generation{Generation: n, Overlay: fmt.Sprint(n), Layer: layer(name)}
	}
	s := &state.State{Current: g(4, "b"), Previous: g(3, "c"), Earlier: []state.Generation{*g(2, "a"), *g(1, "b")}}
	for range 2 {
		if here := r.LayersHere(s); !slices.Equal(here, []string{layer("b"), layer("a")}) {
			t.Errorf("%q", here)
		}
		if a, b, c := r.Version(layer("a")), r.Version(layer("b")), r.Version(layer("c")); a+b+c != "121" {
			t.Errorf("versions %s, %s, %s", a, b, c)
		}
		if err := r.Arrive(*s.Current); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := record.LoadBoot(file); err != nil || b.Generation != *s.Current || r.Layer() != layer("a") {
		t.Errorf("it goes by %+v and is made of %s, %v", b, r.Layer(), err)
	}
}

// A host that caisson did not boot has every layer, as it has none.
func TestAttached(t *testing.T) {
	r, file := newRoot(t, spec.ModeAttached)
	if err := r.Arrive(state.Generation{Layer: layer("b")}); err != nil || !r.RunsHere(layer("c")) {
		t.Error(err)
	}
	if b, err := record.LoadBoot(file); err != nil || b.Generation.Layer != layer("a") {
		t.Errorf("%+v, %v", b, err)
	}
}

// What cannot be read says why, and is not taken for a layer that needs another root.
func TestWhatCannotBeRead(t *testing.T) {
	r, _ := newRoot(t, "netboot")
	name := r.besideName(layer("b"))
	if err := os.MkdirAll(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if w := r.Accounts(layer("b")); w.Err == nil || !r.RunsHere(layer("b")) || r.Fits(layer("b")) == nil {
		t.Errorf("%+v", w)
	}
	if w := r.Accounts(layer("c")); w.Err != nil || len(w.Changes) > 0 { // it has not come
		t.Errorf("%+v", w)
	}
}

// Who leaves is said with how many processes go on; who stays, and who could not log in, is not.
func TestSayLeft(t *testing.T) {
	r, _ := newRoot(t, "netboot")
	row := func(name string) accounts.Change {
		return accounts.Change{Key: "/etc/passwd:" + name, From: accounts.Value{Row: fmt.Sprintf("%s:x:%d:1::/:/bin/sh", name, os.Getuid())}}
	}
	r.layers = map[string]*Beside{layer("b"): {Changes: []accounts.Change{row("eve"), row("bob")}}}
	for _, dir := range []string{"/etc", "/proc/1", "/proc/22", "/proc/self"} {
		if err := os.MkdirAll(r.Dir+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(r.Dir+"/etc/passwd", []byte("bob:x:7:1::/:/bin/sh\neve:x:8:1::/:/usr/sbin/nologin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var said []string
	r.Log = func(event string, fields ...events.Field) {
		for _, f := range fields {
			event += fmt.Sprintf(" %s=%v", f.Name, f.Value)
		}
		said = append(said, event)
	}
	of := func(name string) *track.Found {
		return &track.Found{Generation: state.Generation{Generation: 7, Layer: layer(name)}}
	}
	result := items.Result{Changes: []spec.Drift{{Item: accounts.Name, Key: row("eve").Key}, {Item: accounts.Name, Key: row("bob").Key},
		{Item: "sysctl", Key: "x"}}}
	r.SayLeft(of("a"), of("b"), result)
	want := fmt.Sprintf("user-left user=eve uid=%d processes=2 generation=7 why=processes that run go on", os.Getuid())
	if len(said) != 1 || said[0] != want {
		t.Errorf("%q, want %q", said, want)
	}
}
