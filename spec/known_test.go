// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
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
		"unknown below a section":  {strings.Replace(good, `"sysctl":[{`, `"sysctl":[{"a":1,`, 1), nil},
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
	later := strings.Replace(string(data), `"sysctl":[{`, `"sysctl":[{"later":1,`, 1)
	var c Core
	unknown, err := DecodeKnown([]byte(later), &c)
	if err != nil || !slices.Equal(unknown, []string{"needsLayer", "maintenance", "pause", "agent", "services", "confirm", "gates", "swap", "items"}) || !reflect.DeepEqual(c, full().Core) {
		t.Errorf("%v, unknown %q", err, unknown)
	}
	var o Overlay
	if _, err := DecodeKnown([]byte(later), &o); err == nil || errors.Is(err, ErrNotCanonical) {
		t.Errorf("the whole of it: %v, want an unknown field", err)
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

// TestNeedsFollowFromUse: an overlay of the first release needs nothing.
func TestNeedsFollowFromUse(t *testing.T) {
	o := Overlay{Core: Core{Needs: []string{"stale"}}, Items: Items{Sysctl: []Sysctl{{Key: "a", Value: "1"}}}}
	if o.SetNeeds(); o.Needs != nil {
		t.Errorf("needs %q", o.Needs)
	}
	o.Items.Files = []File{{Path: "/etc/motd"}}
	if o.SetNeeds(); !slices.Equal(o.Needs, []string{"files"}) {
		t.Errorf("needs %q", o.Needs)
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
