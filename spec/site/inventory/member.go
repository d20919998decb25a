// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

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
	out := make([]Member, 0, len(list.Items))
	for _, n := range list.Items {
		out = append(out, Member{n.Metadata.Name, n.Metadata.Labels, n.Status.NodeInfo.SystemUUID})
	}
	return out, nil
}

// restricted is what labels begin with that the API server lets no kubelet give to itself.
const restricted = "node-restriction.kubernetes.io/"

// Claim is what of a Node counts for the site.
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
				c.Errorf(l.At, "kubelet-label", "take one below "+restricted+", or name it in trustKubeletLabels", "a kubelet may give itself the label %.80q, and would choose whether it is a node of the fleet", key)
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
