// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/nearest"
)

// NodeService is a service of one node.
type NodeService struct {
	Name      string `json:"name"`
	Published string `json:"published,omitempty"` // commit; none where it was not sent, or that was not read yet
	Reported  string `json:"reported,omitempty"`  // commit
	Read      bool   `json:"read"`                // what it was sent is known
}

// Node is what GET /v1/nodes/{node} answers.
type Node struct {
	*hub.Detail
	Labels   []string      `json:"labels,omitempty"` // of the site, each as KEY=VALUE
	Sets     []string      `json:"sets,omitempty"`   // NodeSets of the site that it belongs to
	Services []NodeService `json:"services,omitempty"`
}

// Node returns one node with its services.
func (f *Fleet) Node(ctx context.Context, name string) (Node, error) {
	d, err := f.Hub.Node(ctx, name)
	if errors.Is(err, hub.ErrNoNode) {
		known := func(yield func(string) bool) {
			for _, n := range f.Hub.Nodes() {
				if !yield(n.Name) {
					return
				}
			}
		}
		if like := nearest.Word(name, known); like != "" {
			err = cli.WithHint(err, "did you mean "+like+"?")
		}
	}
	if err != nil {
		return Node{}, err
	}
	n := Node{Detail: d}
	if f.Site != nil {
		n.Labels, n.Sets = f.Site.Where(d.Name)
	}
	var was, says map[string]string
	read := false
	if d.Published != nil {
		was, read = f.sent(d.Published.Overlay)
	}
	if d.Report != nil {
		says = d.Report.Services
	}
	for name, commit := range was {
		n.Services = append(n.Services, NodeService{name, commit, says[name], read})
	}
	for name, commit := range says {
		if _, sent := was[name]; !sent {
			n.Services = append(n.Services, NodeService{name, "", commit, read})
		}
	}
	slices.SortFunc(n.Services, func(a, b NodeService) int { return cmp.Compare(a.Name, b.Name) })
	return n, nil
}
