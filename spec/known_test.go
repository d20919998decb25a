// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/golden"
)

// TestDecodeKnown reads what a later release wrote with the types of this one.
func TestDecodeKnown(t *testing.T) {
	data, err := Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	for name, c := range map[string]struct {
		doc     string
		unknown []string // nil: an error
	}{
		"as it is":                 {good, []string{}},
		"a section more":           {strings.Replace(good, `"items":`, `"later":{"a":[1,{"b":null}]},"items":`, 1), []string{"later"}},
		"two more, first and last": {strings.TrimSuffix(strings.Replace(good, `{"api`, `{"a":1,"api`, 1), "}") + `,"z":"\u003c"}`, []string{"a", "z"}},
		"one more twice":           {strings.Replace(good, `"items":`, `"a":1,"a":1,"items":`, 1), nil},
		"a known one twice":        {strings.Replace(good, `"items":`, `"items":{},"items":`, 1), nil},
		"a known one in caps":      {strings.Replace(good, `"items":`, `"ITEMS":{},"items":`, 1), nil},
		"two that fold":            {strings.Replace(good, `"items":`, `"a":1,"A":1,"items":`, 1), nil},
		"an escaped key":           {strings.Replace(good, `"items":`, `"\u0061":1,"items":`, 1), nil},
		"an odd key":               {strings.Replace(good, `"items":`, `"a b":1,"items":`, 1), nil},
		"space":                    {strings.Replace(good, `"items":`, `"a": 1,"items":`, 1), nil},
		"one in a list":            {strings.Replace(good, `"sysctl":[{`, `"sysctl":[{"a":1,`, 1), []string{"items.sysctl[].a"}},
		"one in a map's value":     {strings.Replace(good, `"windows":{"w":{`, `"windows":{"w":{"a":[{}],`, 1), []string{"maintenance.windows.w.a"}},
		"one in an optional":       {strings.Replace(good, `"pause":{`, `"pause":{"a":null,`, 1), []string{"pause.a"}},
		"one in the core's":        {strings.Replace(good, `"network":{`, `"network":{"a":{"B":1},`, 1), []string{"network.a"}},
		"a nested one twice":       {strings.Replace(good, `"sysctl":[{`, `"sysctl":[{"a":1,"a":2,`, 1), nil},
		"a nested one in caps":     {strings.Replace(good, `"sysctl":[{"key"`, `"sysctl":[{"Key"`, 1), nil},
		"nested space":             {strings.Replace(good, `"sysctl":[{`, `"sysctl":[{"a": 1,`, 1), nil},
		"space in an unknown one":  {strings.Replace(good, `"items":`, `"a":{"b": 1},"items":`, 1), nil},
		"a map's key twice":        {strings.Replace(good, `{"A":"2","B":"1"}`, `{"A":"2","A":"2","B":"1"}`, 1), nil},
		"known in another order":   {strings.Replace(good, `"fleet":"f","node":"n"`, `"node":"n","fleet":"f"`, 1), nil},
		"trailing":                 {good + "{}", nil},
		"cut":                      {good[:len(good)-1], nil},
		"a list":                   {"[]", nil},
		"nothing":                  {"", nil},
	} {
		var o Overlay
		unknown, err := DecodeKnown([]byte(c.doc), &o)
		switch {
		case c.unknown == nil && err == nil:
			t.Errorf("%s is taken", name)
		case c.unknown != nil && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.unknown != nil && (!slices.Equal(unknown, c.unknown) || !reflect.DeepEqual(o, full())):
			t.Errorf("%s: unknown %q, want %q; or the rest was changed", name, unknown, c.unknown)
		}
	}
}

// TestLoaderReadsTheCoreOnly: sections that a loader cannot read do not stop it.
func TestLoaderReadsTheCoreOnly(t *testing.T) {
	data, err := Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(data), `"items":{`, `"items":{"sysctl":"later",`, 1)
	var c Core
	unknown, err := DecodeKnown([]byte(later), &c)
	if err != nil || !slices.Equal(unknown, []string{"needsLayer", "maintenance", "pause", "agent", "services", "confirm", "gates", "swap", "secrets", "items"}) || !reflect.DeepEqual(c, full().Core) {
		t.Errorf("%v, unknown %q", err, unknown)
	}
	var o Overlay
	if _, err := DecodeKnown([]byte(later), &o); err == nil {
		t.Error("the whole of it is read as if a section were what this release knows")
	}
}

// TestNothingKnownLeft: of an object that is left out when it is empty, a later release
// may write only what this one does not know.
func TestNothingKnownLeft(t *testing.T) {
	data, err := Encode(Overlay{})
	if err != nil {
		t.Fatal(err)
	}
	for at, doc := range map[string]string{
		"network.later": strings.Replace(string(data), `"items":`, `"network":{"later":1},"items":`, 1),
		"pause.later":   strings.Replace(string(data), `"items":`, `"pause":{"later":1,"reason":""},"items":`, 1),
	} {
		var o Overlay
		if unknown, err := DecodeKnown([]byte(doc), &o); err != nil || !slices.Equal(unknown, []string{at}) {
			t.Errorf("%s: unknown %q, %v", doc, unknown, err)
		}
	}
	var o Overlay
	if _, err := DecodeKnown([]byte(strings.Replace(string(data), `"items":`, `"network":{},"items":`, 1)), &o); err == nil {
		t.Error("an empty object that nobody writes is taken")
	}
}

func TestMissing(t *testing.T) {
	if m := Missing([]string{"a", "b"}, []string{"b"}); !slices.Equal(m, []string{"a"}) {
		t.Errorf("Missing = %q", m)
	}
	if m := Missing(Features(), Features()); m != nil {
		t.Errorf("a release lacks its own features %q", m)
	}
	if !slices.IsSorted(Features()) {
		t.Errorf("features are not sorted: %q", Features())
	}
}

// TestWithout: what a feature brings to a site.cpio can be taken out of it.
func TestWithout(t *testing.T) {
	b := new(Bootstrap)
	golden.Fill(reflect.ValueOf(b).Elem())
	b.Needs = nil
	b.SetNeeds()
	for _, f := range features {
		if (f.loaded == nil) != (f.drop == nil) {
			t.Errorf("%s is used by a site.cpio, or can be taken out of it, and not both", f.name)
		}
		if f.loaded == nil {
			continue
		}
		left := b.Without(slices.DeleteFunc(Features(), func(name string) bool { return name == f.name }))
		if f.loaded(&left) || slices.Contains(left.Needs, f.name) || !f.loaded(b) {
			t.Errorf("%s stays: %+v", f.name, left.Needs)
		}
	}
	if same := b.Without(Features()); !reflect.DeepEqual(&same, b) {
		t.Error("a reader that knows all is given something else")
	}
}

// TestFeaturesAreForGood: names are added, as CAISSON_UPDATE does, and none is taken away or
// renamed. There was none at 0.9.0: what that has, loaders, layers and publishers take for granted
// of each other.
func TestFeaturesAreForGood(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/features.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(golden))
	if update && Missing(want, Features()) == nil {
		want = Features()
		if err := os.WriteFile("testdata/golden/features.txt", []byte(strings.Join(want, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(Features(), want) {
		t.Errorf("the table has %q, want %q as in testdata/golden/features.txt", Features(), want)
	}
}

// TestNeedsFollowFromUse: an overlay says what it uses of the table, and keeps what a later
// release said of it.
func TestNeedsFollowFromUse(t *testing.T) {
	before := features
	defer func() { features = before }()
	for _, b := range []Bootstrap{{Network: []BootNetwork{{}}}, {Nodes: []BootNode{{}}}} {
		if b.SetNeeds(); !slices.Equal(b.Needs, []string{BootNetworkFeature}) {
			t.Errorf("%+v needs %q", b, b.Needs)
		}
		if err := (&Layer{}).Boots(&b); err == nil { // that of 0.9.0
			t.Errorf("a loader that does not act on it takes %+v", b)
		}
	}
	features = []feature{{name: "files", used: func(o *Overlay) bool { return len(o.Items.Files) > 0 }},
		{name: "network", loaded: func(b *Bootstrap) bool { return b.Network != nil }}}
	o := Overlay{Core: Core{Needs: []string{"files", "later"}}, Items: Items{Sysctl: []Sysctl{{Key: "a", Value: "1"}}}}
	if o.SetNeeds(); !slices.Equal(o.Needs, []string{"later"}) {
		t.Errorf("needs %q", o.Needs)
	}
	o.Items.Files = []File{{Path: "/etc/motd"}}
	if o.SetNeeds(); !slices.Equal(o.Needs, []string{"files", "later"}) {
		t.Errorf("needs %q", o.Needs)
	}
	o = Overlay{}
	if o.SetNeeds(); o.Needs != nil {
		t.Errorf("an overlay of 0.9.0 needs %q", o.Needs)
	}
	if err := Knows(&Overlay{Core: Core{Needs: []string{"files"}}}, Features()); err != nil {
		t.Error(err)
	}
	b := Bootstrap{Needs: []string{"network", "later"}}
	if b.SetNeeds(); !slices.Equal(b.Needs, []string{"later"}) {
		t.Errorf("a site.cpio needs %q", b.Needs)
	}
	b = Bootstrap{Network: []BootNetwork{{}}}
	if b.SetNeeds(); !slices.Equal(b.Needs, []string{"network"}) {
		t.Errorf("a site.cpio needs %q", b.Needs)
	}
	if (&Layer{}).Boots(&b) == nil || (&Layer{Features: Features()}).Boots(&b) != nil {
		t.Error("a loader boots from what it does not know, or not from what it does")
	}
	if Knows(&Overlay{Core: Core{Needs: []string{"files"}}}, nil) == nil {
		t.Error("an agent without the feature is taken for one with it")
	}
}

// FuzzDecodeKnown: what is taken is taken again, and the known part is canonical.
func FuzzDecodeKnown(f *testing.F) {
	data, err := Encode(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"apiVersion":"","x":{"y":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o Overlay
		if _, err := DecodeKnown(data, &o); err != nil {
			return
		}
		again, err := Encode(o)
		if err != nil {
			t.Fatal(err)
		}
		var strict Overlay
		if err := Decode(again, &strict); err != nil {
			t.Fatalf("the known part is not canonical: %v", err)
		}
	})
}
