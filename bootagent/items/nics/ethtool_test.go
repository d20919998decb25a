// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// card is an interface whose driver does what real ones are known to do: "main"
// drags "dragged" along for good, "needy" is only active while "main" is, and
// "fixed" cannot be changed.
type card struct {
	name     string
	index    int
	features map[string]FeatureState
}

func newCard() *card {
	on := FeatureState{Changeable: true, Requested: true, Active: true}
	return &card{"eth0", 7, map[string]FeatureState{
		"main": on, "dragged": on, "needy": on, "other": on,
		"fixed": {Requested: true, Active: true}, "tx-tcp-segmentation": on, "tx-tcp6-segmentation": {},
	}}
}

func (c *card) Index(name string) (int, error) {
	if name != c.name {
		return 0, ErrMissing
	}
	return c.index, nil
}

func (c *card) Called(index int) string {
	if index != c.index {
		return ""
	}
	return c.name
}

func (c *card) Features(string) (map[string]FeatureState, error) { return maps.Clone(c.features), nil }

func (c *card) Change(_ string, want map[string]bool) error {
	for _, name := range sorted(want) {
		s, ok := c.features[name]
		if !ok || !s.Changeable {
			return fmt.Errorf("no feature %q to change", name)
		}
		s.Requested, s.Active = want[name], want[name]
		c.features[name] = s
		if _, asked := want["dragged"]; name == "main" && !asked {
			c.features["dragged"] = FeatureState{Changeable: true, Requested: want[name], Active: want[name]}
		}
	}
	needy := c.features["needy"]
	needy.Active = needy.Requested && c.features["main"].Active
	c.features["needy"] = needy
	return nil
}

func (c *card) String() string {
	var out strings.Builder
	for _, name := range sorted(c.features) {
		fmt.Fprintf(&out, "%s %+v\n", name, c.features[name])
	}
	return out.String()
}

func run(t *testing.T, c *card, j item.Journal, want ...spec.Feature) error {
	t.Helper()
	it := NewFeatures(want, nil, "", c, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var left []item.Entry
	for _, e := range j.Entries(FeaturesName) {
		for _, d := range drift {
			if d.Action == spec.ActionRemove && d.Key == e.Key {
				left = append(left, e)
			}
		}
	}
	if err := it.Restore(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	return it.Apply(t.Context(), drift)
}

func feature(name string, on bool) spec.Feature {
	return spec.Feature{Interface: "eth0", Feature: name, On: on}
}

// No user is at home where it acts: it asks the kernel by a socket.
func TestConformance(t *testing.T) {
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		c := newCard()
		want := []spec.Feature{feature("main", false), feature("other", false), feature("tso", false), {Interface: "eth0", Feature: "fixed", On: true}}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return NewFeatures(want, nil, "", c, j) },
			Empty:    func(j item.Journal) item.Item { return NewFeatures(nil, nil, "", c, j) },
			Snapshot: c.String,
		}
	})
}

// What changed in passing comes back with the last feature of the interface, and
// what did not is nobody's business.
func TestSideEffects(t *testing.T) {
	c, j := newCard(), itemtest.Journal(t, t.TempDir())
	before := c.String()
	if err := run(t, c, j, feature("main", false), feature("other", false)); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, e := range j.Entries(FeaturesName) {
		keys = append(keys, e.Key)
	}
	if got := strings.Join(keys, " "); got != "eth0/dragged eth0/main eth0/needy eth0/other" {
		t.Fatalf("entries for %s", got)
	}
	if err := run(t, c, j, feature("main", false)); err != nil {
		t.Fatal(err)
	}
	if !c.features["other"].Active || c.features["main"].Active {
		t.Fatalf("only one feature left the config:\n%s", c)
	}
	if err := run(t, c, j); err != nil {
		t.Fatal(err)
	}
	if after := c.String(); after != before || len(j.Entries(FeaturesName)) > 0 {
		t.Fatalf("after restore:\n%s%+v", after, j.Entries(FeaturesName))
	}
}

// "off [requested on]": the kernel took the request and does not act on it.
func TestConflict(t *testing.T) {
	c, j := newCard(), itemtest.Journal(t, t.TempDir())
	if err := c.Change("eth0", map[string]bool{"main": false, "needy": false, "dragged": true}); err != nil {
		t.Fatal(err)
	}
	before := c.String()
	err := run(t, c, j, feature("needy", true), feature("other", false))
	if err == nil || !strings.Contains(err.Error(), `"needy" of eth0 on`) || !strings.Contains(err.Error(), "There is a conflict between settings chosen for this device") {
		t.Fatalf("apply: %v, want the conflict", err)
	}
	if c.features["needy"].Requested {
		t.Error("the wish was left behind")
	}
	if c.features["other"].Active {
		t.Error("the other feature was not set")
	}
	if err := run(t, c, j); err != nil {
		t.Fatal(err)
	}
	if after := c.String(); after != before {
		t.Fatalf("after restore:\n%s", after)
	}
	// Together with what it needs, it goes through.
	if err := run(t, c, j, feature("needy", true), feature("main", true)); err != nil {
		t.Fatal(err)
	}
}

// What cannot come true is refused, and nothing is switched or journaled.
func TestConflictsAreFoundBefore(t *testing.T) {
	on := FeatureState{Changeable: true, Requested: true, Active: true}
	off := FeatureState{Changeable: true}
	for _, c := range []struct {
		name   string
		have   map[string]FeatureState
		want   []spec.Feature
		reason string // of the first drift, "" when all goes through
	}{
		{"two names of one", map[string]FeatureState{"rx-gro": on}, []spec.Feature{feature("generic-receive-offload", true), feature("rx-gro", false)}, "is to be off, which is the same feature of the kernel, rx-gro"},
		{"its need is taken away", map[string]FeatureState{"tx-scatter-gather": on, "tx-tcp-segmentation": off}, []spec.Feature{feature("sg", false), feature("tso", true)},
			"tx-tcp-segmentation needs tx-scatter-gather, which is off"},
		{"its need is off", map[string]FeatureState{"tx-scatter-gather": off, "tx-generic-segmentation": off}, []spec.Feature{feature("gso", true)}, "tx-generic-segmentation needs tx-scatter-gather"},
		{"its need comes, too", map[string]FeatureState{"tx-scatter-gather": off, "tx-generic-segmentation": off}, []spec.Feature{feature("gso", true), feature("sg", true)}, ""},
		{"one of two needs", map[string]FeatureState{"tx-scatter-gather": on, "tx-checksum-ipv4": on, "tx-checksum-ip-generic": off, "tx-tcp-segmentation": off}, []spec.Feature{feature("tso", true)}, ""},
		{"one of a group can", map[string]FeatureState{"tx-scatter-gather": on, "tx-checksum-ipv4": on, "tx-checksum-ipv6": off, "tx-tcp-segmentation": off, "tx-tcp6-segmentation": off}, []spec.Feature{feature("tso", true)}, ""},
		{"asked for and kept off", map[string]FeatureState{"needy": {Changeable: true, Requested: true}, "main": off}, []spec.Feature{feature("needy", true)}, "it was asked for and the kernel keeps it off"},
	} {
		card := &card{"eth0", 7, c.have}
		before, j := card.String(), itemtest.Journal(t, t.TempDir())
		it := NewFeatures(c.want, nil, "", card, j)
		drift, err := it.Check(t.Context())
		if err != nil || len(drift) == 0 {
			t.Fatalf("%s: %+v, %v", c.name, drift, err)
		}
		refused := slices.IndexFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRefuse })
		if c.reason == "" {
			if refused >= 0 {
				t.Errorf("%s: %+v", c.name, drift[refused])
			}
			continue
		}
		if refused < 0 || !strings.Contains(drift[refused].Reason, c.reason) || !strings.Contains(drift[refused].Reason, "There is a conflict between settings chosen for this device") {
			t.Errorf("%s: %+v, want it refused: %s", c.name, drift, c.reason)
			continue
		}
		only := slices.DeleteFunc(drift, func(d spec.Drift) bool { return d.Action != spec.ActionRefuse })
		if err := it.Apply(t.Context(), only); err != nil || card.String() != before || len(j.Entries(FeaturesName)) > 0 {
			t.Errorf("%s: %v, now\n%s%+v", c.name, err, card, j.Entries(FeaturesName))
		}
	}
}

// Features of interfaces that are found by more than their name.
func TestFound(t *testing.T) {
	sys := t.TempDir()
	for name, address := range map[string]string{"eth0": "52:54:00:00:00:01", "eth1": "52:54:00:00:00:02"} {
		if err := os.MkdirAll(filepath.Join(sys, "class/net", name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sys, "class/net", name, "address"), []byte(address+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	nic := func(m spec.NICMatch) spec.NIC {
		return spec.NIC{ID: "x", Match: m, Settings: []spec.NICSetting{{Group: spec.NICFeatures, Name: "other", Value: "off"}, {Group: "ring", Name: "rx", Value: "512"}}}
	}
	c, j := newCard(), itemtest.Journal(t, t.TempDir())
	check := func(m spec.NICMatch, beside ...spec.Feature) []spec.Drift {
		t.Helper()
		drift, err := NewFeatures(beside, []spec.NIC{nic(m)}, sys, c, j).Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return drift
	}
	if d := check(spec.NICMatch{MAC: "52:54:00:00:00:01"}, feature("other", false)); len(d) != 1 || d[0].Key != "eth0/other" || d[0].Action != spec.ActionChange {
		t.Errorf("found, and wanted twice: %+v", d)
	}
	if d := check(spec.NICMatch{MAC: "52:54:00:00:00:09"}); len(d) != 1 || d[0].Key != "mac=52:54:00:00:00:09/other" || d[0].Action != spec.ActionDefer {
		t.Errorf("not there: %+v", d)
	}
	if d := check(spec.NICMatch{Name: "eth0"}, feature("other", true)); len(d) != 2 || d[0].Action != spec.ActionRefuse || d[1].Action != spec.ActionRefuse {
		t.Errorf("two that differ: %+v", d)
	}
}

// An interface of the same name that was made again is another one: it has its
// own originals.
func TestInterfaceMadeAnew(t *testing.T) {
	c, j := newCard(), itemtest.Journal(t, t.TempDir())
	if err := run(t, c, j, feature("other", false)); err != nil {
		t.Fatal(err)
	}
	off := newCard()
	off.index = 8
	off.features["other"] = FeatureState{Changeable: true}
	off.features["main"] = FeatureState{Changeable: true, Requested: true, Active: true}
	before := off.String()
	if err := run(t, off, j); err != nil {
		t.Fatal(err)
	}
	if after := off.String(); after != before {
		t.Fatalf("the old one's originals went to the new one:\n%s", after)
	}
	if len(j.Entries(FeaturesName)) > 0 {
		t.Fatalf("entries %+v", j.Entries(FeaturesName))
	}
}

// The same, still wanted: set again, and the new one's originals are kept.
func TestInterfaceMadeAnewIsSetAgain(t *testing.T) {
	c, j := newCard(), itemtest.Journal(t, t.TempDir())
	c.features["other"] = FeatureState{Changeable: true}
	if err := run(t, c, j, feature("other", true), feature("main", false)); err != nil {
		t.Fatal(err)
	}
	anew := newCard()
	anew.index = 8
	anew.features["other"] = FeatureState{Changeable: true}
	before := anew.String()
	if err := run(t, anew, j, feature("other", true), feature("main", false)); err != nil {
		t.Fatal(err)
	}
	if !anew.features["other"].Active || anew.features["main"].Active {
		t.Fatalf("it was not set again:\n%s", anew)
	}
	if err := run(t, anew, j); err != nil {
		t.Fatal(err)
	}
	if after := anew.String(); after != before {
		t.Fatalf("after restore:\n%s", after)
	}
}

func TestInterfaceGoes(t *testing.T) {
	c, j := newCard(), itemtest.Journal(t, t.TempDir())
	if err := run(t, c, j, feature("other", false)); err != nil {
		t.Fatal(err)
	}
	c.name, c.index = "eth1", 8
	drift, err := NewFeatures([]spec.Feature{feature("other", false)}, nil, "", c, j).Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionDefer {
		t.Fatalf("drift %+v, %v; want it deferred and nothing removed", drift, err)
	}
	if err := run(t, c, j); err != nil {
		t.Fatalf("a vanished interface fails restore: %v", err)
	}
	if len(j.Entries(FeaturesName)) > 0 {
		t.Fatalf("entries %+v", j.Entries(FeaturesName))
	}
}

func TestNames(t *testing.T) {
	have := map[string]FeatureState{"": {}, "tx-tcp-accecn-segmentation": {}, "tx-tcp-segmentation": {}, "tx-tcp6-segmentation": {}, "rx-gro": {}, "rx-gro-hw": {}}
	for name, want := range map[string]string{
		"tso":                      "tx-tcp-accecn-segmentation tx-tcp-segmentation tx-tcp6-segmentation",
		"tcp-segmentation-offload": "tx-tcp-accecn-segmentation tx-tcp-segmentation tx-tcp6-segmentation",
		"tx-tcp-segmentation":      "tx-tcp-segmentation",
		"gro":                      "rx-gro",
		"rx-gro":                   "rx-gro",
		"tcp-segmentation":         "", // a part of a name
		"rx-gr.":                   "", // a pattern
		"lro":                      "", // not on this interface
	} {
		if got := strings.Join(members(name, have), " "); got != want {
			t.Errorf("%s means %q, want %q", name, got, want)
		}
	}
}
