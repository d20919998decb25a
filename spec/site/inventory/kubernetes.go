// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// kubeNode is what matters of a Kubernetes Node.
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
			}
		}
		if _, err := d.Token(); err != nil {
			return nil, false
		}
	}
	if len(nodes) > 0 {
		c.Notef(nodes[0].Name.At, "self-reported", "select by name what a node must not choose, such as who may become root on it, and put its match into nodes:",
			"labels and UUIDs from Kubernetes are what each kubelet says of itself: a node that was taken over chooses its overrides by them")
	}
	return nodes, taken || kube
}

func (n kubeNode) doc(c *shape.Checker, at report.Pos) (doc NodeDoc, ok bool) {
	if n.Kind != "Node" && n.Kind != "" {
		c.Warnf(at, "inventory", "", "an object of kind %s is not a node", n.Kind)
		return doc, false
	}
	name := n.Metadata.Name
	if h := n.Metadata.Labels[hostnameLabel]; h != "" {
		name = h
	}
	doc = NodeDoc{Name: shape.Text{S: name, At: at}}
	for k, v := range n.Metadata.Labels {
		doc.Labels = append(doc.Labels, shape.Entry[shape.Text]{Key: shape.Text{S: k, At: at}, Val: shape.Text{S: v, At: at}})
	}
	if id := n.Status.NodeInfo.SystemUUID; id != "" {
		doc.Match.UUIDs = []shape.Text{{S: id, At: at}}
	}
	return doc, true
}
