// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/service"
)

// serviceDifference says where one service stands, as services diff prints it.
type serviceDifference struct {
	Name      string             `json:"name"`
	Head      string             `json:"head,omitempty"`    // commit that git has
	Problem   string             `json:"problem,omitempty"` // why git cannot tell
	Locked    string             `json:"locked,omitempty"`
	Frozen    *service.Frozen    `json:"frozen,omitempty"`
	Published []publishedService `json:"published"`
	Reported  []publishedService `json:"reported,omitzero"` // what nodes say that they keep to; only where the fleet's service was asked
	Differs   bool               `json:"differs"`           // a frozen service may be behind git
}

// publishedService is a commit that nodes were sent.
type publishedService struct {
	Commit string   `json:"commit,omitempty"` // none: nodes that are to have the service have not
	Nodes  []string `json:"nodes"`
}

func (a *app) servicesDiffCommand() *cobra.Command {
	var f servicesFlags
	var look looking
	var from string
	var at asking
	c := verb("services diff", func(c *cobra.Command, names []string) error {
		if len(look.whom.site) == 0 {
			look.whom.site = []string{"site.yaml"}
		}
		f.site = look.whom.site
		r, list, err := a.openServices(f, names)
		if err != nil {
			return err
		}
		look.whom.loaded = r.site
		from = cmp.Or(from, r.site.Registry())
		if from == "" {
			return cli.Usage("give --from, or registry: in the site", "no registry to compare with")
		}
		fleet, err := a.publishedServices(c.Context(), &look, from)
		if err != nil {
			return err
		}
		out, err := r.compare(c.Context(), fleet, list)
		if err != nil {
			return err
		}
		if at.Named() {
			if err := r.addReported(c.Context(), &at, out); err != nil {
				return err
			}
		}
		return a.printDifferences(out)
	})
	look.flags(a, c.Flags())
	at.flags(c.Flags())
	c.Flags().Lookup("at").Usage = "also compare what nodes report, by the fleet's service at `URL` ($CAISSON_FLEET)"
	c.Flags().Lookup("site").Usage = "the site's `FILE`, site.yaml when absent; several are merged"
	c.Flags().StringVar(&f.cache, "cache", "", "directory kept between runs "+cacheDefault)
	c.Flags().StringVar(&from, "from", "", "compare with `REF` instead of the site's registry")
	return c
}

// publishedServices opens what is published, nil where nothing is yet.
func (a *app) publishedServices(ctx context.Context, look *looking, from string) (*publish.Fleet, error) {
	if parsed, err := oci.ParseRef(from); err == nil {
		if empty, err := a.empty(parsed, look.known); empty || err != nil {
			return nil, err
		}
	}
	fleet, err := look.open(ctx, a, from)
	if errors.Is(err, publish.ErrUnpublished) {
		a.say(nothingYet, from)
		return nil, nil
	}
	return fleet, err
}

func (r *servicesRun) compare(ctx context.Context, fleet *publish.Fleet, list []*service.Service) ([]serviceDifference, error) {
	sent := map[string]*spec.Overlay{} // by node
	out := []serviceDifference{}
	for _, s := range list {
		d := serviceDifference{Name: s.Name, Published: []publishedService{}}
		l, ok := r.lock.Services[s.Name]
		if ok && l.Stale(s) == "" {
			d.Locked, d.Frozen = l.Commit, l.Frozen
		}
		head, err := r.source.Head(ctx, s)
		if d.Head = head.ID; err != nil {
			d.Problem = err.Error()
		}
		d.Differs = err != nil || d.Locked == "" || d.Head != d.Locked && d.Frozen == nil
		for _, node := range r.nodes(s) {
			commit, err := publishedCommit(ctx, fleet, sent, node, s.Name)
			if err != nil {
				return nil, err
			}
			d.Differs = d.Differs || commit != d.Locked
			d.Published = addNode(d.Published, commit, node)
		}
		out = append(out, d)
	}
	return out, nil
}

func addNode(list []publishedService, commit, node string) []publishedService {
	i := slices.IndexFunc(list, func(p publishedService) bool { return p.Commit == commit })
	if i < 0 {
		list = append(list, publishedService{Commit: commit})
		i = len(list) - 1
	}
	list[i].Nodes = append(list[i].Nodes, node)
	return list
}

// addReported adds what nodes say that they keep to: another commit than the published
// one where an operator froze the service there, or where the node has not got it yet.
func (r *servicesRun) addReported(ctx context.Context, at *asking, out []serviceDifference) error {
	said := map[string]map[string]string{} // by node, by service
	for i := range out {
		d := &out[i]
		d.Reported = []publishedService{}
		for _, p := range d.Published {
			for _, node := range p.Nodes {
				if said[node] == nil {
					var detail struct{ Report *spec.Report }
					if err := at.Get(ctx, "/v1/nodes/"+url.PathEscape(node), &detail); err != nil {
						return fmt.Errorf("what %s reports: %w", node, err)
					}
					said[node] = map[string]string{}
					if detail.Report != nil && detail.Report.Services != nil {
						said[node] = detail.Report.Services
					}
				}
				commit := said[node][d.Name]
				d.Differs = d.Differs || commit != p.Commit
				d.Reported = addNode(d.Reported, commit, node)
			}
		}
	}
	return nil
}

// publishedCommit returns the commit of a service that a node was sent, "" for none; without a
// fleet no node was sent any.
func publishedCommit(ctx context.Context, fleet *publish.Fleet, sent map[string]*spec.Overlay, node, name string) (string, error) {
	o, read := sent[node]
	if !read && fleet != nil {
		_, ok, err := fleet.Row(ctx, node)
		if err == nil && ok {
			o, err = fleet.Overlay(ctx, node)
		}
		if err != nil {
			return "", err
		}
		sent[node] = o
	}
	if o == nil {
		return "", nil
	}
	i := slices.IndexFunc(o.Services, func(s spec.Service) bool { return s.Name == name })
	if i < 0 {
		return "", nil
	}
	return o.Services[i].Commit, nil
}

func (a *app) printDifferences(list []serviceDifference) error {
	err := a.show(list, func() {
		for _, d := range list {
			d.print(a.out)
		}
	})
	differs := false
	var unknown error
	for _, d := range list {
		differs = differs || d.Differs
		if d.Problem != "" {
			unknown = errors.Join(unknown, errors.New("service "+d.Name+": "+d.Problem))
		}
	}
	return cmp.Or(err, unknown, drift(differs))
}

func (d serviceDifference) print(w io.Writer) {
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
