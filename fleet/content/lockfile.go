// SPDX-License-Identifier: Apache-2.0

package content

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// LockFile is the lock beside a site while a verb works on it.
type LockFile struct {
	*service.Lock
	Name string
	site *site.Site
	was  []byte // as it was read
}

// OpenLock returns the lock of a site's services, to change.
func OpenLock(s *site.Site) (f *LockFile, err error) {
	f = &LockFile{Lock: s.Services().CopyLock(), Name: s.Services().LockFile, site: s}
	f.was, err = f.Encode()
	return f, err
}

// ReadLock reads a lock as it is now; without a file it is empty.
func ReadLock(name string) (*service.Lock, error) {
	data, err := ownfiles.ReadPublic(name, service.MaxLock)
	if errors.Is(err, fs.ErrNotExist) {
		return service.NewLock(), nil
	}
	if err != nil {
		return nil, err
	}
	l, err := service.ParseLock(data)
	return l, fault.In(err, "%s", name)
}

// Named returns the services with these names; all of the site without any.
func (f *LockFile) Named(names []string) (out []*service.Service, err error) {
	all := f.site.Services().List
	known := plain.Each(all, func(s service.Service) string { return s.Name })
	for i := range all {
		if len(names) == 0 || slices.Contains(names, all[i].Name) {
			out = append(out, &all[i])
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, cli.Usage(cmp.Or(plain.DidYouMean(name, slices.Values(known)), "'caisson services list' lists them"),
				"the site has no service %q", name)
		}
	}
	return out, nil
}

// Update moves the rows of these services to what they follow now. What went well is in the lock also
// where something did not.
func (f *LockFile) Update(ctx context.Context, c *Source, list []*service.Service) ([]Change, error) {
	changes := []Change{}
	var failed []error
	for _, s := range list {
		change, err := c.Update(ctx, f.Lock, s)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		changes = append(changes, change)
	}
	if len(failed) == 1 {
		return changes, failed[0] // with its hint
	}
	return changes, errors.Join(failed...)
}

// Save replaces the file, without what left the site. It refuses to write over what another verb wrote
// meanwhile: an update may take minutes, and must not end a freeze.
func (f *LockFile) Save() error {
	for name := range f.Services {
		if !slices.ContainsFunc(f.site.Services().List, func(s service.Service) bool { return s.Name == name }) {
			delete(f.Services, name)
		}
	}
	data, err := f.Encode()
	if err != nil {
		return err
	}
	now, err := ReadLock(f.Name)
	if err != nil {
		return err
	}
	is, err := now.Encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(is, f.was) {
		return cli.WithHint(fmt.Errorf("%s has changed meanwhile, and stays as it is", f.Name), "run this again")
	}
	return durable.WriteFile(f.Name, data, 0o644)
}

// Listed is one service as the site and its lock have it.
type Listed struct {
	Name   string          `json:"name"`
	Unit   string          `json:"unit"`
	URL    string          `json:"url"`
	Ref    string          `json:"ref"` // branch main
	Nodes  []string        `json:"nodes"`
	Commit string          `json:"commit,omitempty"` // that is locked
	Image  string          `json:"image,omitempty"`  // its digest
	Stale  string          `json:"stale,omitempty"`  // why the lock does not count
	Frozen *service.Frozen `json:"frozen,omitempty"`
}

// List describes services.
func (f *LockFile) List(list []*service.Service) []Listed {
	out := []Listed{}
	for _, s := range list {
		one := Listed{Name: s.Name, Unit: s.Unit, URL: s.Git.URL, Ref: s.Git.Ref(), Nodes: nodesWith(f.site, s)}
		if l, ok := f.Services[s.Name]; ok {
			one.Commit, one.Image, one.Stale, one.Frozen = l.Commit, l.Image.Digest, l.Stale(s), l.Frozen
		}
		out = append(out, one)
	}
	return out
}

// nodesWith returns the nodes that have a service.
func nodesWith(of *site.Site, s *service.Service) []string {
	out := []string{}
	for _, n := range of.Nodes() {
		if s.Has(n) {
			out = append(out, n.Name)
		}
	}
	return out
}

// WriteList prints services as a table.
func WriteList(w io.Writer, list []Listed) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range list {
		state := fmt.Sprintf("%.12s", s.Commit)
		switch {
		case s.Commit == "":
			state = "not locked"
		case s.Stale != "":
			state += ", " + s.Stale
		case s.Frozen != nil:
			state += ", frozen: " + s.Frozen.Reason
		}
		cli.Printf(t, "%s\t%s\t%s of %s\t%s\t%s\n", s.Name, s.Unit, s.Ref, s.URL, plain.Count(len(s.Nodes), "node"), state)
	}
	_ = t.Flush() // the verb ends with what its output could not take
}

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
