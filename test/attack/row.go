// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	_ "embed"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed attacks.yaml
var corpus []byte

// Row is one attack, or a control.
type Row struct {
	Name   string            `yaml:"name"`
	Class  string            `yaml:"class"`
	Code   string            `yaml:"code"`  // expected refusal; empty for a control
	Check  string            `yaml:"check"` // "package/name" of the check that must refuse
	Author map[string][]Edit `yaml:"author"`
	Served map[string][]Edit `yaml:"served"`
	Sign   []string          `yaml:"sign"`  // keys, one bundle each; operator when absent
	Grant  string            `yaml:"grant"` // key that permits the epoch; epoch when absent
	// FleetGrant is the key that permits the epoch of fleet:current; epoch when absent.
	FleetGrant string   `yaml:"fleetGrant"`
	Before     []string `yaml:"before"` // junk bundles in front of the good ones
	Bare       bool     `yaml:"bare"`   // nothing inline
	Serve      string   `yaml:"serve"`  // how the registry misbehaves
	Node       Node     `yaml:"node"`
}

// Edit replaces Old, which must be there, by New, repeated Times. In New, {pad:N}
// stands for N bytes of x.
type Edit struct {
	Old   string `yaml:"old"`
	New   string `yaml:"new"`
	Times int    `yaml:"times"`
}

// Node is what the machine is and remembers.
type Node struct {
	Fleet     string    `yaml:"fleet"`
	Name      string    `yaml:"name"`
	MACs      []string  `yaml:"macs"`
	UUIDs     []string  `yaml:"uuids"`
	Floor     [2]uint64 `yaml:"floor"`    // epoch, generation
	AtFloor   string    `yaml:"atFloor"`  // "same" or "other": overlay accepted at the floor
	FleetSeen [2]uint64 `yaml:"fleetMin"` // greatest minimum of fleet:current seen
	Reject    []string  `yaml:"reject"`   // "overlay", "layer", "on"
	On        string    `yaml:"on"`       // layer that is stacked: "layer", the overlay's own, or a digest
	RTC       time.Time `yaml:"rtc"`
	Build     time.Time `yaml:"build"`
	Newest    time.Time `yaml:"newest"`
	Keys      []string  `yaml:"keys"`
	Threshold int       `yaml:"threshold"`
	EpochKeys []string  `yaml:"epochKeys"`
	Arch      string    `yaml:"arch"`
	Expired   bool      `yaml:"expired"` // controls: whether the overlay must come out marked
}

// Load reads the corpus. Whatever a row leaves out is as in the good world.
func Load(t testing.TB) []Row {
	t.Helper()
	var raw []yaml.Node
	if err := yaml.Unmarshal(corpus, &raw); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	var rows []Row
	for _, n := range raw {
		r := Row{Sign: []string{"operator"}, Grant: "epoch", FleetGrant: "epoch", Node: goodNode()}
		text, err := yaml.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&r); err != nil {
			t.Fatalf("attacks.yaml:%d: %v", n.Line, err)
		}
		if names[r.Name] || r.Name == "" || r.Class == "" || (r.Code == "") != (r.Check == "") {
			t.Fatalf("attacks.yaml:%d: row %q needs a name of its own, a class, and a code together with a check", n.Line, r.Name)
		}
		names[r.Name] = true
		rows = append(rows, r)
	}
	return rows
}

func goodNode() Node {
	day := func(s string) time.Time {
		t, err := time.Parse(time.DateOnly, s)
		if err != nil {
			panic(err)
		}
		return t
	}
	return Node{
		Fleet: "metal-a", Name: "superhost", MACs: []string{"52:54:00:12:34:56"}, UUIDs: []string{"4c4c4544-0000-2010-8020-80c04f202020"},
		Floor: [2]uint64{1, 5}, FleetSeen: [2]uint64{1, 3}, RTC: day("2026-11-10"), Build: day("2026-10-01"), Newest: day("2026-10-20"),
		Keys: []string{"operator", "second"}, Threshold: 1, EpochKeys: []string{"epoch"}, Arch: "amd64",
	}
}

// Refuses says whether a row is an attack.
func (r Row) Refuses() bool { return r.Code != "" }

// Of is the package that must refuse, the first part of Check.
func (r Row) Of() string {
	pkg, _, _ := strings.Cut(r.Check, "/")
	return pkg
}
