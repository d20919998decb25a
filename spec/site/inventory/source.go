// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"reflect"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

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
	Trust  []shape.Text `site:"trustKubeletLabels" doc:"keys of labels that count though a kubelet may set them on its own Node; when absent, only those below node-restriction.kubernetes.io/"`
	UUIDs  shape.Flag   `site:"trustKubeletUUIDs" doc:"use the systemUUID that a kubelet reports as an identifier of its node, where the site gives none"`
	At     report.Pos
}

// Decode reads names of files, in one text or in a list, and entries of a cluster.
func (d *SourcesDoc) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind == tree.Scalar {
		for _, name := range strings.Fields(v.Text) {
			*d = append(*d, SourceDoc{File: shape.Text{S: name, At: v.At}})
		}
		return
	}
	var list []SourceDoc
	c.Decode(v, &list)
	*d = list
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
