// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// kubeNode holds the part of a Kubernetes Node that matters.
type kubeNode struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Status struct {
		NodeInfo struct {
			SystemUUID string `json:"systemUUID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

const hostnameLabel = "kubernetes.io/hostname"

// ReadKube reads the JSON of kubectl get nodes; false when it is something else.
func ReadKube(c *shape.Checker, name string, data []byte) (nodes []NodeDoc, ok bool) {
	src := &report.Source{Name: name}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	kube, taken := false, false
	var other []string
	line, counted := int32(1), int64(0)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, false
		}
		if key != "items" {
			var skip json.RawMessage
			if d.Decode(&skip) != nil {
				return nil, false
			}
			kube = kube || key == "kind" && strings.HasSuffix(strings.Trim(string(skip), `"`), "List")
			continue
		}
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return nil, false
		}
		for d.More() {
			begin := d.InputOffset()
			begin += int64(len(data[begin:]) - len(bytes.TrimLeft(data[begin:], ", \t\r\n")))
			line += int32(bytes.Count(data[counted:begin], []byte("\n")))
			counted = begin
			var n kubeNode
			if err := d.Decode(&n); err != nil {
				c.Errorf(report.Pos{Src: src, Line: line, Col: 1}, "json", "", "a node that cannot be read: %v", err)
				return nodes, true
			}
			taken = true
			if doc, ok := n.doc(c, report.Pos{Src: src, Line: line, Col: 1}); ok {
				nodes = append(nodes, doc)
				if doc.Name.S != n.Metadata.Name {
					other = append(other, fmt.Sprintf("%.63s (%.63s)", doc.Name.S, n.Metadata.Name))
				}
			}
		}
		if _, err := d.Token(); err != nil {
			return nil, false
		}
	}
	if !taken && !kube {
		return nil, false
	}
	checkEnd(c, src, d, data)
	ownUUIDs(c, nodes)
	if len(other) > 0 {
		c.Warnf(nodes[0].Name.At, "self-reported", "compare them: a node that was taken over chooses its overrides by another one's name",
			"each kubelet says by the label %s what its node is called: %s", hostnameLabel, plain.Some(other, 8))
	}
	if len(nodes) > 0 {
		c.Notef(nodes[0].Name.At, "self-reported",
			"select by name what a node must not choose, such as who may become root on it, and put its match into nodes:",
			"labels and UUIDs from Kubernetes are what each kubelet says of itself: a node that was taken over chooses its overrides by them")
	}
	return nodes, true
}

// checkEnd wants an object to end, and the file with it.
func checkEnd(c *shape.Checker, src *report.Source, d *json.Decoder, data []byte) {
	_, cut := d.Token()
	_, more := d.Token()
	rest := bytes.TrimLeft(data[d.InputOffset():], " \t\r\n")
	at := report.Pos{Src: src, Line: 1 + int32(bytes.Count(data[:len(data)-len(rest)], []byte("\n"))), Col: 1}
	switch {
	case cut != nil:
		c.Errorf(at, "json", "", "the end of the object of the nodes is not there: %v", cut)
	case more != io.EOF:
		c.Errorf(at, "json", "give each output of kubectl as a file of its own", "more follows after the object of the nodes")
	}
}

// ownUUIDs takes from the nodes the UUIDs that are not one machine's own: such a node is
// known by its name alone, and the others stay as they are.
func ownUUIDs(c *shape.Checker, nodes []NodeDoc) {
	shared := map[string]bool{} // by UUID, whether more than one machine has it
	for _, n := range nodes {
		for _, id := range n.Match.UUIDs {
			key := strings.ToLower(id.S)
			_, twice := shared[key]
			shared[key] = twice || len(key) == 36 && rules.MachineUUID(key) != nil
		}
	}
	for i, n := range nodes {
		if len(n.Match.UUIDs) > 0 && shared[strings.ToLower(n.Match.UUIDs[0].S)] {
			c.Warnf(n.Name.At, "uuid", "give it a match below nodes:, by its MAC addresses",
				"node %.120s is matched by its name alone: more than one machine has the UUID %.40s", n.Name.S, n.Match.UUIDs[0].S)
			nodes[i].Match.UUIDs = nil
		}
	}
}

func (n kubeNode) doc(c *shape.Checker, at report.Pos) (doc NodeDoc, ok bool) {
	if n.Kind != "Node" && n.Kind != "" {
		c.Warnf(at, "inventory", "", "an object of kind %s is not a node", n.Kind)
		return doc, false
	}
	doc = NodeDoc{Name: shape.Text{S: cmp.Or(n.Metadata.Labels[hostnameLabel], n.Metadata.Name), At: at}}
	for k, v := range n.Metadata.Labels {
		doc.Labels = append(doc.Labels, shape.Entry[shape.Text]{Key: shape.Text{S: k, At: at}, Val: shape.Text{S: v, At: at}})
	}
	if id := n.Status.NodeInfo.SystemUUID; id != "" {
		doc.Match.UUIDs = []shape.Text{{S: id, At: at}}
	}
	return doc, true
}

// Member is a Node of a cluster: its name, which its kubelet cannot choose once it has
// credentials, its labels, and the UUID that the kubelet says.
type Member struct {
	Name   string
	Labels map[string]string
	UUID   string
}

// Members reads the JSON of kubectl get nodes.
func Members(data []byte) ([]Member, error) {
	var list struct {
		Items []kubeNode `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read Nodes: %w", err)
	}
	return plain.Each(list.Items, func(n kubeNode) Member {
		return Member{n.Metadata.Name, n.Metadata.Labels, n.Status.NodeInfo.SystemUUID}
	}), nil
}

// restricted begins the labels that the API server lets no kubelet give to itself.
const restricted = "node-restriction.kubernetes.io/"

// Claim holds the part of a Node that counts for the site.
type Claim struct {
	name    string
	labels  map[string]string
	uuid    string // in lower case, "" where it is not a UUID
	trusted bool   // the UUID is an identifier, where the site gives none
	at      report.Pos
}

// counts reports whether a label of a Node counts.
func (d *ClusterDoc) counts(key string) bool {
	return strings.HasPrefix(key, restricted) || slices.ContainsFunc(d.Trust, func(t shape.Text) bool { return t.S == key })
}

// Select returns what counts of the Nodes that an entry of the inventory means, in order of
// their names. A label that a kubelet may give to itself chooses none.
func (d *ClusterDoc) Select(c *shape.Checker, nodes []Member) []Claim {
	type want struct {
		key, value string
		any        bool
	}
	var wanted []want
	for i, l := range d.Labels {
		key, value, given := strings.Cut(l.S, "=")
		if !d.counts(key) {
			c.Within([]string{"labels", shape.Nth(i)}, func() {
				c.Errorf(l.At, "kubelet-label", "take one below "+restricted+", or name it in trustKubeletLabels",
					"a kubelet may give itself the label %.80q, and would choose whether it is a node of the fleet", key)
			})
		}
		wanted = append(wanted, want{key, value, !given})
	}
	var out []Claim
	for _, n := range nodes {
		if slices.ContainsFunc(wanted, func(w want) bool { v, ok := n.Labels[w.key]; return !ok || !w.any && v != w.value }) {
			continue
		}
		one := Claim{name: n.Name, labels: map[string]string{}, trusted: d.UUIDs.On, at: d.At}
		if id := strings.ToLower(n.UUID); uuidText.MatchString(id) {
			one.uuid = id
		}
		for key, value := range n.Labels {
			if d.counts(key) {
				one.labels[key] = value
			}
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		c.Warnf(d.At, "no-node", "kubectl get nodes --show-labels shows them", "the cluster has no Node that is meant")
	}
	slices.SortFunc(out, func(a, b Claim) int { return cmp.Compare(a.name, b.name) })
	return out
}

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
