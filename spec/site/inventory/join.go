// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// LeftOut is a node whose identity is in doubt. Nothing is made for it until an operator has
// looked: it keeps what is published for it, and the others are published.
type LeftOut struct{ Name, Why string }

// Join lays the Nodes of a cluster over nodes that the site has itself, see [Check]. What the
// site says has the last word: a Node of the same name adds labels, and no identifier.
//
// The holder of a kubelet can have its own node left out by it, and no other: but one that
// shares an UUID with it which the site takes from kubelets.
func Join(c *shape.Checker, given []Node, claims []Claim) (nodes []Node, left []LeftOut) {
	j := joining{given: map[string]int{}, owner: map[string]string{}, say: map[string][]string{}}
	nodes = slices.Clone(given)
	for i, n := range nodes {
		j.given[n.Name] = i
		for _, id := range n.Match.UUIDs {
			j.owner[id] = n.Name
		}
	}
	claims = firsts(claims)
	for _, one := range claims {
		if one.trusted && j.owner[one.uuid] == "" && !j.matched(nodes, one.name) {
			j.say[one.uuid] = append(j.say[one.uuid], one.name)
		}
	}
	out := map[string]bool{}
	for _, one := range claims {
		if why, hint := j.doubt(nodes, one); why != "" {
			left, out[one.name] = append(left, LeftOut{one.name, why}), true
			c.Report.Add(report.Problem{At: one.at, Path: shape.JoinPath(c.Path), Severity: report.Warning, Rule: "left-out",
				Message: fmt.Sprintf("node %.120s is left out, and keeps what is published for it: %s", one.name, why), Hint: hint})
			continue
		}
		i, is := j.given[one.name]
		if !is {
			n := Node{Name: one.name, Labels: one.labels, at: one.at}
			if one.trusted {
				n.Match.UUIDs = []string{one.uuid}
			}
			nodes = append(nodes, n)
			continue
		}
		labels := maps.Clone(one.labels)
		maps.Copy(labels, nodes[i].Labels)
		nodes[i].Labels = labels
	}
	return slices.DeleteFunc(nodes, func(n Node) bool { return out[n.Name] }), left
}

// firsts returns the first claim of each name: entries that mean the same Node are one.
func firsts(claims []Claim) (out []Claim) {
	seen := map[string]bool{}
	for _, one := range claims {
		if !seen[one.name] {
			seen[one.name] = true
			out = append(out, one)
		}
	}
	return out
}

// joining holds the facts on all before a Node is taken.
type joining struct {
	given map[string]int      // nodes of the site, by name
	owner map[string]string   // which of them has a UUID
	say   map[string][]string // Nodes by the UUID that their kubelets say, where that counts
}

// matched reports whether the site says itself by what a machine may claim to be a node.
func (j *joining) matched(nodes []Node, name string) bool {
	i, is := j.given[name]
	return is && len(nodes[i].Match.MACs)+len(nodes[i].Match.UUIDs) > 0
}

// doubt says why a Node is left out, "" where it is not.
func (j *joining) doubt(nodes []Node, one Claim) (why, hint string) {
	const replaced = "a machine that was replaced gets its match below nodes:; else look at who holds that kubelet"
	if err := rules.Node(one.name); err != nil {
		return err.Error(), "no machine can have an overlay of that name: choose others by labels"
	}
	i, is := j.given[one.name]
	switch owner := j.owner[one.uuid]; {
	case one.uuid != "" && owner != "" && owner != one.name:
		return fmt.Sprintf("its kubelet says the UUID %s, which the site gives to %s", one.uuid, owner), replaced
	case one.uuid != "" && is && len(nodes[i].Match.UUIDs) > 0 && owner == "":
		return fmt.Sprintf("its kubelet says the UUID %s, and the site gives it %s", one.uuid, nodes[i].Match.UUIDs[0]), replaced
	case !one.trusted || j.matched(nodes, one.name):
	case one.uuid == "":
		return "its kubelet says no UUID", "give it a match below nodes:"
	case rules.MachineUUID(one.uuid) != nil:
		return fmt.Sprintf("its kubelet says the UUID %s, which firmware has where nobody set one", one.uuid),
			"give it a match below nodes:, by its MAC addresses"
	case len(j.say[one.uuid]) > 1:
		other := j.say[one.uuid][0]
		if other == one.name {
			other = j.say[one.uuid][1]
		}
		return fmt.Sprintf("its kubelet says the UUID %s, and so does that of %s", one.uuid, other),
			"give the right one a match below nodes:, which nobody else can claim"
	}
	return "", ""
}

// virtual are the vendors of virtual network cards among those that IEEE gave the
// first half of an address to: VMware, Hyper-V, VirtualBox, Xen, Parallels.
var virtual = []string{"00:05:69", "00:0c:29", "00:1c:14", "00:50:56", "00:15:5d", "08:00:27", "00:16:3e", "00:1c:42"}

// Hardware reports whether a MAC address, as a node's match has it, is that of a
// card: given by a vendor of hardware, and not chosen on the spot, as QEMU's and
// those of clouds are.
func Hardware(mac string) bool {
	first, err := strconv.ParseUint(mac[:min(2, len(mac))], 16, 8)
	return err == nil && first&2 == 0 && len(mac) > 8 && !slices.Contains(virtual, mac[:8])
}
