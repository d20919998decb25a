// SPDX-License-Identifier: Apache-2.0

package published

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

func TestMemory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "caisson.memory")
	m, err := OpenMemory(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.At("oci:out"); ok {
		t.Error("an empty memory has seen something")
	}
	want := Seen{Fleet: "metal-a", Epoch: 1, Generation: 7, Reserved: 8, Index: Stamp{"sha256:x", time.Unix(1e9, 0).UTC()}}
	if err := m.Set("oci:out", want); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = OpenMemory(name); err != nil {
		t.Fatal(err)
	}
	if got, ok := m.At("oci:out"); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("At = %+v, %v; want %+v", got, ok, want)
	}
	if err := m.Set("oci:other", Seen{Fleet: "b"}); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(name); !strings.Contains(string(again), string(first[:strings.Index(string(first), `"oci:out"`)])) {
		t.Errorf("the file changed more than it had to:\n%s", again)
	}
	if m, err := OpenMemory(filepath.Join(name, "none")); err == nil {
		if err := m.Set("x", want); err == nil {
			t.Error("remembered in a file that cannot be")
		}
	}
	for _, bad := range []string{"", "{}", `{"apiVersion":"caisson.dev/v1alpha1","kind":"PublisherMemory","surprise":1}`, strings.Repeat(" ", maxMemory+1)} {
		if err := os.WriteFile(name, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenMemory(name); err == nil {
			t.Errorf("%.60q was taken for a memory", bad)
		}
	}
	var none *Memory
	if err := none.Set("x", want); err != nil {
		t.Error(err)
	}
}

// Two publish a site to two places at once: none forgets what the other remembers.
func TestTwoRemember(t *testing.T) {
	name := filepath.Join(t.TempDir(), "caisson.memory")
	open := func() *Memory {
		m, err := OpenMemory(name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := open(), open()
	for generation := range uint64(2) {
		if err := errors.Join(b.Set("b", Seen{Fleet: "b", Generation: 8 + generation}), a.Set("a", Seen{Fleet: "a", Generation: 3 + generation})); err != nil {
			t.Fatal(err)
		}
	}
	now := open()
	if ofA, _ := now.At("a"); ofA.Generation != 4 {
		t.Errorf("of a: %+v", ofA)
	}
	if ofB, _ := now.At("b"); ofB.Generation != 9 {
		t.Errorf("of b: %+v", ofB)
	}
}

// Two publish to one place: what the later one writes lowers no floor that the other has noted since it looked.
func TestTwoRememberOnePlace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "caisson.memory")
	at := func(seconds int64) Stamp { return Stamp{Digest: "x", IssuedAt: time.Unix(seconds, 0).UTC()} }
	seen := Seen{Fleet: "f", Epoch: 1, Generation: 5, Reserved: 5, Index: at(5), Layers: at(5)}
	a, err := OpenMemory(name)
	if err := errors.Join(err, a.Set("p", seen)); err != nil {
		t.Fatal(err)
	}
	b, err := OpenMemory(name)
	if err != nil {
		t.Fatal(err)
	}
	newer := seen
	newer.Generation, newer.Reserved, newer.Index = 6, 6, at(6)
	seen.Layers = at(7)
	if err := errors.Join(b.Set("p", newer), a.Set("p", seen)); err != nil {
		t.Fatal(err)
	}
	want := newer
	want.Layers = at(7)
	if got, _ := a.At("p"); !reflect.DeepEqual(got, want) {
		t.Errorf("after an older one: %+v, want %+v", got, want)
	}
	again := want // the same generation, signed again, and what is beside it
	again.Index, again.Current = at(9), at(9)
	older := want
	older.Layers = at(10)
	if err := errors.Join(b.Set("p", again), a.Set("p", older)); err != nil {
		t.Fatal(err)
	}
	again.Layers = at(10)
	if got, _ := a.At("p"); !reflect.DeepEqual(got, again) {
		t.Errorf("after an older statement of one generation: %+v, want %+v", got, again)
	}
	begun, signed := again, again // one gave out a number, and the other one signed again what was there
	begun.Reserved, begun.Own = 9, Own{Epoch: 1, Generation: 6, Digest: "y"}
	signed.Index = at(12)
	if err := errors.Join(b.Set("p", begun), a.Set("p", signed)); err != nil {
		t.Fatal(err)
	}
	begun.Index = at(12)
	if got, _ := a.At("p"); !reflect.DeepEqual(got, begun) {
		t.Errorf("after a number that was given out: %+v, want %+v", got, begun)
	}
	if err := b.Again(); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.At("p"); !reflect.DeepEqual(got, begun) {
		t.Errorf("read again: %+v, want %+v", got, begun)
	}
	if err := b.Set("p", Seen{Fleet: "f", Epoch: 2, Generation: 1}); err != nil { // a fleet that starts again
		t.Fatal(err)
	}
	if got, _ := b.At("p"); got.Epoch != 2 || got.Generation != 1 {
		t.Errorf("a later epoch: %+v", got)
	}
	if err := a.Set("p", Seen{Fleet: "g", Generation: 1}); err != nil { // another fleet has the place now
		t.Fatal(err)
	}
	if got, _ := a.At("p"); got.Fleet != "g" {
		t.Errorf("another fleet: %+v", got)
	}
}

// TestMine: a memory of a release that did not keep it has what it wrote last, unless it began less than it saw.
func TestMine(t *testing.T) {
	of := func(generation, reserved uint64) Seen {
		return Seen{Epoch: 2, Generation: generation, Reserved: reserved, Index: Stamp{Digest: "x"}}
	}
	for seen, want := range map[*Seen]Own{
		{}: {}, new(of(3, 3)): {Epoch: 2, Generation: 3, Digest: "x"}, new(of(3, 4)): {Epoch: 2, Generation: 3, Digest: "x"},
		new(of(5, 3)): {Epoch: 2, Generation: 3, Digest: "unknown"},
		{Generation: 5, Reserved: 6, Own: Own{Generation: 3, Digest: "y"}}: {Generation: 3, Digest: "y"},
		{Generation: 5, Reserved: 6, Own: Own{Next: []string{"a", "b"}}}:   {Next: []string{"a", "b"}},
	} {
		if got := seen.Mine(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %+v, want %+v", *seen, got, want)
		}
	}
	if own := (Own{Digest: "x", Next: []string{"y"}}); !own.Has("x") || !own.Has("y") || own.Has("z") || own.Has("") {
		t.Error("a root is this publisher's, or is not, by its digest")
	}
}

// A memory of a later release is not written again, which would lose what it knows more.
func TestMemoryOfALaterRelease(t *testing.T) {
	for _, text := range []string{`"laterKey":1,"places":{}}`, `"places":{"oci:a":{"laterKey":1}}}`} {
		name := filepath.Join(t.TempDir(), "memory")
		if err := os.WriteFile(name, []byte(`{"apiVersion":"`+spec.APIVersion+`","kind":"`+KindMemory+`",`+text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenMemory(name)
		var hinted interface{ Hint() string }
		if err == nil || !strings.Contains(err.Error(), "laterKey") || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "later one") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestGolden: caisson.memory is read, and written byte-equal.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.memory", Page: "../../docs/formats/site-files.md", New: new(memoryFile), Refused: true,
		Sample: golden.Head(spec.APIVersion, KindMemory),
		Types:  []reflect.Type{reflect.TypeFor[memoryFile](), reflect.TypeFor[Seen](), reflect.TypeFor[Stamp](), reflect.TypeFor[Own]()},
	}.InFile(t, func(name string, v any) (err error) {
		m := &Memory{name: name, places: map[string]Seen{}}
		for place, seen := range v.(*memoryFile).Places {
			err = m.Set(place, seen) // a golden document has one
		}
		return err
	}, func(name string) (any, error) {
		m, err := OpenMemory(name)
		if err != nil {
			return nil, err
		}
		return &memoryFile{spec.APIVersion, KindMemory, m.places}, nil
	}))
}
