// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Difference is a node in two states of a fleet. An overlay is nil where the node was
// not published; both are when its content is the same.
type Difference struct {
	Node             string
	From, To         *spec.Overlay
	HoldFrom, HoldTo string // as people read them
}

// Differences compares nodes one after the other, and each two layers once.
type Differences struct {
	layers Layers
	moves  map[[2]string][]Change
}

// NewDifferences returns what knows layers as a planner does.
func NewDifferences(layers Layers) *Differences {
	return &Differences{layers, map[[2]string][]Change{}}
}

// Plan returns the changes from the one state to the other.
func (all *Differences) Plan(d Difference) NodePlan {
	n := NodePlan{Name: d.Node, Class: spec.ClassNone, Changes: []Change{}}
	switch {
	case d.From == nil && d.To == nil:
	case d.From == nil:
		n.Changes = append(n.Changes, Change{Change: spec.Change{Item: "node", Key: d.Node, To: "published",
			Action: spec.ActionAdd}, Class: spec.ClassCold, why: "it came"})
	case d.To == nil:
		n.Changes = append(n.Changes, Change{Change: spec.Change{Item: "node", Key: d.Node, From: "published",
			Action: spec.ActionRemove}, Class: spec.ClassNone, why: "it left"})
	default:
		c := &comparison{changes: compareOverlays(d.From, d.To)}
		n.Changes = append(n.Changes, c.changes...)
		n.Changes = append(n.Changes, all.between(d.From.Layer, d.To.Layer)...)
	}
	if d.HoldFrom != d.HoldTo {
		h := &comparison{}
		h.add("hold", "node", d.HoldFrom, d.HoldTo)
		h.changes[0].Class, h.changes[0].why = spec.ClassNone, "a hold begins or ends"
		n.Changes = append(n.Changes, h.changes...)
	}
	for _, c := range n.Changes {
		if spec.Worse(c.Class, n.Class) || n.Why == "" {
			n.Class, n.Why = c.Class, c.why
		}
	}
	return n
}

func (all *Differences) between(from, to string) []Change {
	pair := [2]string{from, to}
	known, ok := all.moves[pair]
	switch {
	case ok || from == to:
		return known
	case to == "":
		known = leaves(from, "it has no layer any more")
	default:
		var old *Layer
		if from != "" {
			old = all.layers.Published(from)
		}
		known = between(all.layers, from, to, old, all.layers.Published(to))
	}
	all.moves[pair] = known
	return known
}

// interfaceKey names an interface: a card by its MAC address where that finds it.
func interfaceKey(i spec.Interface) string { return cmp.Or(i.MAC, i.Name) }

// interfaceText is an interface in one line.
func interfaceText(i spec.Interface) string {
	var words []string
	add := func(format string, value any, isSet bool) {
		if isSet {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	if b := i.Bond; b != nil {
		words = append(words, "bond "+b.Mode+" of "+strings.Join(b.Members, " "))
		add("lacp %s", b.LACPRate, b.LACPRate != "")
		add("min-links %d", b.MinLinks, b.MinLinks != 0)
		add("hash %s", b.HashPolicy, b.HashPolicy != "")
		add("primary %s", b.Primary, b.Primary != "")
	}
	if v := i.VLAN; v != nil {
		words = append(words, fmt.Sprintf("vlan %d on %s", v.ID, v.On))
	}
	add("dhcp %s", i.DHCP, i.DHCP != "")
	words = append(words, i.Addresses...)
	add("%s", i.Gateway, i.Gateway != "")
	for _, r := range i.Routes {
		words = append(words, strings.TrimSuffix("to "+r.To+" via "+r.Via, " via "))
		add("metric %d", r.Metric, r.Metric != 0)
	}
	add("mtu %d", i.MTU, i.MTU != 0)
	if i.Optional {
		words = append(words, "optional")
	}
	if i.MAC != "" {
		add("called %s", i.Name, i.Name != "")
	}
	return cmp.Or(strings.Join(words, " "), "up")
}

// serviceText says all in which two overlays may differ of a service.
func serviceText(s spec.Service) string {
	var dirs []string
	for _, d := range s.Directories {
		what := d.From + " at " + d.To
		if d.File {
			what = "file " + what
		}
		dirs = append(dirs, what)
	}
	text := fmt.Sprintf("commit %s of %s: %s", cmp.Or(s.Commit, "unknown"), s.Unit, strings.Join(dirs, ", "))
	for _, more := range [][2]string{{"user", s.User}, {"package", s.Package}, {"then", s.Action}} {
		if more[1] != "" {
			text += ", " + more[0] + " " + more[1]
		}
	}
	if s.Image.Digest != "" {
		text += ", image " + s.Image.Digest
	}
	return text
}
