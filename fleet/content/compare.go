// SPDX-License-Identifier: Apache-2.0

package content

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Standing says where one service stands: in git, in the lock, and on nodes.
type Standing struct {
	Name      string          `json:"name"`
	Head      string          `json:"head,omitempty"`    // commit that git has
	Problem   string          `json:"problem,omitempty"` // why git cannot tell
	Locked    string          `json:"locked,omitempty"`
	Frozen    *service.Frozen `json:"frozen,omitempty"`
	Published []Has           `json:"published"`
	Reported  []Has           `json:"reported,omitzero"` // what nodes say that they keep to; only where the fleet's service was asked
	Differs   bool            `json:"differs"`           // a frozen service may be behind git
}

// Has names the nodes that have a commit.
type Has struct {
	Commit string   `json:"commit,omitempty"` // none: nodes that are to have the service have not
	Nodes  []string `json:"nodes"`
}

// Published returns the overlay that a node was sent, nil where it was sent none.
type Published = func(ctx context.Context, node string) (*spec.Overlay, error)

// Compare asks git about services, and compares with the lock and with what nodes were sent.
func (f *LockFile) Compare(ctx context.Context, c *Source, list []*service.Service, published Published) ([]Standing, error) {
	sent := map[string]*spec.Overlay{} // by node
	out := []Standing{}
	for _, s := range list {
		d := Standing{Name: s.Name, Published: []Has{}}
		if l, ok := f.Services[s.Name]; ok && l.Stale(s) == "" {
			d.Locked, d.Frozen = l.Commit, l.Frozen
		}
		head, err := c.Head(ctx, s)
		if d.Head = head.ID; err != nil {
			d.Problem = err.Error()
		}
		d.Differs = err != nil || d.Locked == "" || d.Head != d.Locked && d.Frozen == nil
		for _, node := range nodesWith(f.site, s) {
			o, read := sent[node]
			if !read {
				if o, err = published(ctx, node); err != nil {
					return nil, err
				}
				sent[node] = o
			}
			commit := commitOf(o, s.Name)
			d.Differs = d.Differs || commit != d.Locked
			d.Published = add(d.Published, commit, node)
		}
		out = append(out, d)
	}
	return out, nil
}

// commitOf returns the commit of a service that an overlay brings, "" for none.
func commitOf(o *spec.Overlay, name string) string {
	if o == nil {
		return ""
	}
	for _, s := range o.Services {
		if s.Name == name {
			return s.Commit
		}
	}
	return ""
}

func add(list []Has, commit, node string) []Has {
	i := slices.IndexFunc(list, func(p Has) bool { return p.Commit == commit })
	if i < 0 {
		list = append(list, Has{Commit: commit})
		i = len(list) - 1
	}
	list[i].Nodes = append(list[i].Nodes, node)
	return list
}

// AddReported adds what nodes say that they keep to, by service: another commit than the published
// one where an operator froze the service there, or where the node has not got it yet.
func AddReported(ctx context.Context, list []Standing, reported func(ctx context.Context, node string) (map[string]string, error)) error {
	said := map[string]map[string]string{} // by node
	for i := range list {
		d := &list[i]
		d.Reported = []Has{}
		for _, p := range d.Published {
			for _, node := range p.Nodes {
				commits, asked := said[node]
				if !asked {
					var err error
					if commits, err = reported(ctx, node); err != nil {
						return err
					}
					said[node] = commits
				}
				d.Differs = d.Differs || commits[d.Name] != p.Commit
				d.Reported = add(d.Reported, commits[d.Name], node)
			}
		}
	}
	return nil
}

// Problems joins why git could not tell of services.
func Problems(list []Standing) (err error) {
	for _, d := range list {
		if d.Problem != "" {
			err = errors.Join(err, errors.New("service "+d.Name+": "+d.Problem))
		}
	}
	return err
}

// Write prints where the service stands.
func (d Standing) Write(w io.Writer) {
	verdict := "same"
	switch {
	case d.Differs:
		verdict = "differs"
	case d.Frozen != nil:
		verdict = "frozen: " + d.Frozen.Reason
	}
	cli.Printf(w, "%s  %s\n", d.Name, verdict)
	cli.Printf(w, "  git        %s\n  locked     %s\n", cmp.Or(d.Head, "none"), cmp.Or(d.Locked, "none"))
	for _, p := range d.Published {
		cli.Printf(w, "  published  %s  %s\n", cmp.Or(p.Commit, "none"), strings.Join(p.Nodes, " "))
	}
	for _, p := range d.Reported {
		cli.Printf(w, "  reported   %s  %s\n", cmp.Or(p.Commit, "none"), strings.Join(p.Nodes, " "))
	}
}
