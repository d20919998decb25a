// SPDX-License-Identifier: Apache-2.0

// Package inventory holds the machines of a fleet: their names, their labels, and
// by what a machine may claim to be one of them.
//
// They are written in a site, in a file of their own, or come as the JSON of
// kubectl get nodes. Names and identifiers are unique, or two machines would be
// given one overlay. What a node runs is not here.
package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Node is a machine of the fleet.
type Node struct {
	Name   string
	Labels map[string]string
	Match  spec.Match

	at report.Pos
}

// NodeDoc is a node as it is written.
type NodeDoc struct {
	Name   shape.Text            `site:"name,required"`
	Labels shape.Map[shape.Text] `site:"labels"`
	Match  matchDoc              `site:"match" doc:"identifiers of the machine that may be this node; the name alone when absent"`
}

type matchDoc struct {
	MACs  []shape.Text `site:"macs"`
	UUIDs []shape.Text `site:"uuids" doc:"SMBIOS product UUID"`
}

// Example shows an address or an identifier that stands where match belongs.
func (*matchDoc) Example(instead *tree.Value) string {
	if instead.Kind != tree.Scalar {
		return ""
	}
	if uuidText.MatchString(strings.ToLower(instead.Text)) {
		return "{uuids: [" + instead.Text + "]}"
	}
	return "{macs: [" + strconv.Quote(instead.Text) + "]}"
}

// Doc is a file with nothing but nodes.
type Doc struct {
	Nodes []NodeDoc `site:"nodes,required"`
}

// MaxFile bounds the JSON of a cluster's nodes, which is wordy.
const MaxFile = 256 << 20

var (
	macMarks = strings.NewReplacer(":", "", "-", "", ".", "")
	macHex   = regexp.MustCompile(`^[0-9a-f]{12}$`)
	uuidText = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// Check makes nodes of what was read: names and identifiers are unique.
func Check(c *shape.Checker, docs []NodeDoc) []Node {
	nodes := make([]Node, 0, len(docs))
	names, ids := map[string]report.Pos{}, map[string]report.Pos{}
	once := func(seen map[string]report.Pos, what, key string, at report.Pos) bool {
		if first, dup := seen[key]; dup {
			c.Errorf(at, "duplicate-node", "", "the %s %s is given already, at %s", what, key, first)
			return false
		}
		seen[key] = at
		return true
	}
	for _, d := range docs {
		n := Node{Name: d.Name.S, at: d.Name.At, Labels: make(map[string]string, len(d.Labels))}
		if d.Name.At.Src == nil {
			continue // not written, or no text: said already
		}
		c.Valid(n.at, rules.Node(n.Name))
		once(names, "node", n.Name, n.at)
		for _, l := range d.Labels {
			n.Labels[l.Key.S] = l.Val.S
		}
		for _, t := range d.Match.MACs {
			mac, err := ParseMAC(t.S)
			if err != nil {
				c.Errorf(t.At, "mac", "as in 52:54:00:12:34:56", "%v", err)
				continue
			}
			if once(ids, "MAC address", mac, t.At) {
				n.Match.MACs = append(n.Match.MACs, mac)
			}
		}
		for _, t := range d.Match.UUIDs {
			id := strings.ToLower(t.S)
			if !uuidText.MatchString(id) {
				c.Errorf(t.At, "uuid", "as dmidecode -s system-uuid prints it", "%q is not a UUID", t.S)
			} else if c.Valid(t.At, rules.MachineUUID(id)) && once(ids, "UUID", id, t.At) {
				n.Match.UUIDs = append(n.Match.UUIDs, id)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// ParseMAC reads the address of an interface in any usual form, and returns it in
// lower case with colons.
func ParseMAC(text string) (string, error) {
	hex := macMarks.Replace(strings.ToLower(text))
	if !macHex.MatchString(hex) || hex == "000000000000" || hex == "ffffffffffff" {
		return "", fmt.Errorf("%q is not the address of an interface", text)
	}
	return hex[0:2] + ":" + hex[2:4] + ":" + hex[4:6] + ":" + hex[6:8] + ":" + hex[8:10] + ":" + hex[10:12], nil
}

// At is where the node was written.
func (n Node) At() report.Pos { return n.at }

// Label is a node's label, or what every node has by itself.
func (n Node) Label(key string) (string, bool) {
	v, ok := n.Labels[key]
	switch {
	case ok:
	case key == hostnameLabel:
		return n.Name, true
	case key == "kubernetes.io/os":
		return "linux", true
	}
	return v, ok
}

// DidYouMean is a hint for a name that no node has.
func DidYouMean(name string, nodes []Node) string {
	names := plain.Each(nodes[:min(len(nodes), 2000)], func(n Node) string { return n.Name })
	if hint := report.DidYouMean(name, names); strings.HasPrefix(hint, "did you mean") {
		return hint
	}
	if len(names) == 0 {
		return "the site has no nodes"
	}
	return "nodes are called " + plain.Some(names, 3)
}

// LabelHint is a hint for a label that no node has.
func LabelHint(key, value string, nodes []Node) string {
	keys, values := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		for k, v := range n.Labels {
			keys[k] = true
			if k == key {
				values[v] = true
			}
		}
	}
	got, known := key, keys
	if len(values) > 0 {
		got, known = value, values
	}
	return cmp.Or(report.DidYouMean(got, slices.Sorted(maps.Keys(known))), "'caisson explain FILE --node N' shows a node's labels")
}

// SourcesDoc says where more nodes come from than the site has itself.
type SourcesDoc []SourceDoc

// SourceDoc is a file with nodes, or the cluster that the site is read from.
type SourceDoc struct {
	File    shape.Text
	Cluster *ClusterDoc
}

// inventoryClusterDoc is an entry that is not a file.
type inventoryClusterDoc struct {
	Cluster ClusterDoc `site:"cluster,required" doc:"the Nodes of the cluster that the site is read from"`
}

// ClusterDoc says which Nodes of a cluster are nodes of the fleet, and what of them counts.
type ClusterDoc struct {
	Labels []shape.Text `site:"labels" doc:"labels of the Nodes, each as KEY=VALUE or KEY; a Node needs all of them; every Node when absent"`
	Trust  []shape.Text `site:"trustKubeletLabels" doc:"keys of labels that count though kubelets set them; when absent, none"`
	UUIDs  shape.Flag   `site:"trustKubeletUUIDs" doc:"use the systemUUID of a kubelet as an identifier of its node, where the site gives none"`
	At     report.Pos
}

// Decode reads names of files, in one text or in a list, and entries of a cluster.
func (d *SourcesDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind == tree.Scalar {
		*d = plain.Each(strings.Fields(v.Text), func(name string) SourceDoc { return SourceDoc{File: shape.Text{S: name, At: v.At}} })
		return
	}
	*d = shape.Read[[]SourceDoc](c, v)
}

// Schema returns the schema of both forms.
func (*SourcesDoc) Schema(g *shape.Generator) any {
	return map[string]any{"anyOf": []any{g.Of(reflect.TypeFor[shape.Text](), false), g.Of(reflect.TypeFor[[]SourceDoc](), false)}}
}

// Schema returns the schema of an entry.
func (*SourceDoc) Schema(g *shape.Generator) any {
	return map[string]any{"anyOf": []any{g.Of(reflect.TypeFor[shape.Text](), false), g.Of(reflect.TypeFor[inventoryClusterDoc](), false)}}
}

// Decode reads the name of a file, or an entry of a cluster.
func (d *SourceDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind != tree.Mapping {
		c.Decode(v, &d.File)
		return
	}
	var entry inventoryClusterDoc
	if c.Decode(v, &entry); entry.Cluster.At != (report.Pos{}) {
		d.Cluster = &entry.Cluster
	}
}

// Fleet holds the machines of a site, found by name.
type Fleet struct {
	Nodes []Node // in the order of the input

	// Left are the nodes of a cluster whose identity is in doubt, in order of their names.
	// They are not among Nodes, and what is published for them stays.
	Left []LeftOut

	byName map[string]int
}

// NewFleet returns a fleet of nodes whose names [Check] or [Join] found unique.
func NewFleet(nodes []Node, left []LeftOut) Fleet {
	f := Fleet{Nodes: nodes, Left: left, byName: make(map[string]int, len(nodes))}
	for i, n := range nodes {
		f.byName[n.Name] = i
	}
	return f
}

// Names returns the names of all nodes, in the order of the input.
func (f *Fleet) Names() []string {
	return plain.Each(f.Nodes, func(n Node) string { return n.Name })
}

// Get returns the node of a name, and whether there is one; else a node without name and labels.
func (f *Fleet) Get(name string) (Node, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Node{}, false
	}
	return f.Nodes[i], true
}

// Node is [Fleet.Get] for a name that somebody wrote: the error of one that no node has says
// which is near.
func (f *Fleet) Node(name string) (Node, error) {
	n, ok := f.Get(name)
	if !ok {
		return n, report.Invalidf(DidYouMean(name, f.Nodes), "the site has no node %q", name)
	}
	return n, nil
}

// Has reports whether the fleet has a node of that name.
func (f *Fleet) Has(name string) bool {
	_, ok := f.byName[name]
	return ok
}

// WhyLeftOut says why a node is left out, "" where it is not.
func (f *Fleet) WhyLeftOut(name string) string {
	return plain.First(f.Left, func(l LeftOut) bool { return l.Name == name }).Why
}
