// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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
	return nodes, taken || kube
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
