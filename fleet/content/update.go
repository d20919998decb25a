// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/git"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/configcheck"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Change holds what an update, a rollback or a hold does to one service.
type Change struct {
	Name    string          `json:"name"`
	From    string          `json:"from,omitempty"` // commit; none is locked before the first update
	To      string          `json:"to"`
	Commits []git.Commit    `json:"commits"` // on the way, the newest first
	Paths   []string        `json:"paths"`   // of the repository, that differ
	Frozen  *service.Frozen `json:"frozen,omitempty"`
}

// Changed reports whether nodes get other files.
func (c Change) Changed() bool { return c.From != c.To }

// Update moves a service's row of a lock to what it follows now. A frozen one stays.
func (c *Source) Update(ctx context.Context, lock *service.Lock, s *service.Service) (change Change, err error) {
	defer func() { err = ofService(s.Name, err) }()
	was, known := lock.Services[s.Name]
	if known && was.Frozen != nil && was.Stale(s) == "" {
		return stays(s.Name, was), nil
	}
	r, err := git.Open(ctx, c.Cache, s.Git.URL, c.Limits)
	if err != nil {
		return Change{}, err
	}
	defer r.Close() // nothing was written through it
	to, err := head(ctx, r, s)
	if errors.Is(err, git.ErrGone) {
		err = cli.WithHint(err, "nodes keep what they have; correct git: of the NodeService")
	}
	if err == nil && known && was.Frozen != nil {
		err = cli.WithHint(fmt.Errorf("it is frozen, and %s", was.Stale(s)), "'caisson services forward' ends the freeze")
	}
	if err == nil {
		err = onward(ctx, r, s, was, to.tip)
	}
	if err != nil {
		return Change{}, err
	}
	return c.move(ctx, r, lock, s, to)
}

// stays is the change of a service whose row stays at its commit.
func stays(name string, at service.Locked) Change {
	return Change{Name: name, From: at.Commit, To: at.Commit, Commits: []git.Commit{}, Paths: []string{}, Frozen: at.Frozen}
}

// move brings a row to a commit.
func (c *Source) move(ctx context.Context, r *git.Repository, lock *service.Lock, s *service.Service, to followed) (Change, error) {
	was, at := lock.Services[s.Name], to.at
	var seen *service.Signed
	if s.Git.AllowedSigners != "" {
		seen = &service.Signed{Commit: to.tip.ID, Date: to.tip.Date}
	}
	out := Change{Name: s.Name, From: was.Commit, To: at.ID, Commits: []git.Commit{at}, Paths: []string{}, Frozen: to.frozen}
	switch {
	case was.Commit == at.ID && was.Stale(s) == "":
		was.Frozen, was.Signed = to.frozen, seen
		lock.Services[s.Name] = was
		return stays(s.Name, was), nil
	case was.Commit != "" && was.URL == s.Git.URL:
		if err := c.between(ctx, r, s, was.Commit, &out); err != nil {
			return out, err
		}
	}
	l, err := c.lock(ctx, r, s, at)
	if err != nil {
		return out, err
	}
	l.Frozen, l.Signed = to.frozen, seen
	lock.Services[s.Name] = l
	return out, nil
}

// between says what differs from an earlier commit, where that can still be had.
func (c *Source) between(ctx context.Context, r *git.Repository, s *service.Service, was string, out *Change) (err error) {
	if err := r.Have(ctx, was); err != nil {
		c.Say("%s: list changes since commit %s: %v", s.Name, abbreviate(was), err)
		return nil
	}
	if out.Commits, err = r.Between(ctx, was, out.To, s.From()); err != nil {
		return err
	}
	if out.Commits == nil {
		out.Commits = []git.Commit{} // it goes back
	}
	if out.Paths, err = r.Changed(ctx, was, out.To, s.From()); out.Paths == nil {
		out.Paths = []string{}
	}
	return err
}

// Rollback takes a service's row to an earlier commit, the one before when to is "",
// and freezes it there. Any commit will do that the repository has, also of another
// branch: nodes get the files that it has at the service's paths.
func (c *Source) Rollback(ctx context.Context, lock *service.Lock, s *service.Service, to string,
	why service.Frozen) (change Change, err error) {
	defer func() { err = ofService(s.Name, err) }()
	was, known := lock.Services[s.Name]
	if !known {
		return Change{}, errNeverLocked
	}
	r, err := git.Open(ctx, c.Cache, s.Git.URL, c.Limits)
	if err != nil {
		return Change{}, err
	}
	defer r.Close() // nothing was written through it
	at, err := c.target(ctx, r, s, was, to)
	if err != nil {
		return Change{}, err
	}
	return c.move(ctx, r, lock, s, followed{tip: at, at: at, frozen: &why})
}

// target returns the commit that a rollback goes to.
func (c *Source) target(ctx context.Context, r *git.Repository, s *service.Service, was service.Locked, to string) (git.Commit, error) {
	if to == "" {
		if err := r.Have(ctx, was.Commit); err != nil {
			return git.Commit{}, cli.WithHint(err, "--to names a commit")
		}
		return r.Before(ctx, was.Commit, s.From())
	}
	id, err := r.Find(ctx, to)
	if errors.Is(err, git.ErrGone) && s.Git.Branch != "" { // an abbreviated name, of what was not fetched yet
		if _, err := r.Follow(ctx, "heads/"+s.Git.Branch); err != nil {
			return git.Commit{}, err
		}
		id, err = r.Find(ctx, to)
	}
	if err != nil {
		return git.Commit{}, err
	}
	return r.Last(ctx, id, s.From())
}

// Freeze keeps a service's row where it is.
func Freeze(lock *service.Lock, name string, why service.Frozen) (Change, error) {
	was, known := lock.Services[name]
	if !known {
		return Change{}, ofService(name, errNeverLocked)
	}
	was.Frozen = &why
	lock.Services[name] = was
	return stays(name, was), nil
}

// Thaw ends a freeze, and reports whether there was one.
func Thaw(lock *service.Lock, name string) bool {
	was := lock.Services[name]
	if was.Frozen == nil {
		return false
	}
	was.Frozen = nil
	lock.Services[name] = was
	return true
}

var errNeverLocked = cli.WithHint(errors.New("it is not in "+service.LockName), "'caisson services update' locks it")

// Write prints the change for people.
func (c Change) Write(w io.Writer) {
	switch {
	case c.From == "":
		cli.Printf(w, "%s  %s\n", c.Name, c.To)
	case c.Changed():
		cli.Printf(w, "%s  %.12s → %s\n", c.Name, c.From, c.To)
	case c.Frozen != nil:
		cli.Printf(w, "%s  %s  frozen: %s\n", c.Name, c.To, c.Frozen.Reason)
		return
	default:
		cli.Printf(w, "%s  %s  unchanged\n", c.Name, c.To)
		return
	}
	for _, x := range c.Commits {
		cli.Printf(w, "  %.12s  %s  %s  %s\n", x.ID, x.Date.Format("2006-01-02"), x.Author, x.Subject)
	}
	for _, p := range c.Paths {
		cli.Printf(w, "  %s\n", p)
	}
	if c.Frozen != nil {
		cli.Printf(w, "  frozen: %s\n", c.Frozen.Reason)
	}
}

// Tag is the tag of an image, by which it stays in a registry.
func Tag(image string) string { return "keep-" + strings.Replace(image, ":", "-", 1) }

// Push brings the images that overlays of a site name into a registry. What it has is
// not asked for anywhere else.
func (c *Source) Push(ctx context.Context, r *registry.Registry, s *site.Site) error {
	for v, l := range locked(s) {
		has, err := has(ctx, r, l.Image)
		if err == nil && !has {
			var file string
			if file, err = c.image(ctx, v, l); err == nil {
				err = push(ctx, r, l.Image, file)
			}
		}
		if err != nil {
			return ofService(v.Name, err)
		}
	}
	return nil
}

// locked goes over the services of a site whose rows of the lock count: a node that has another one
// cannot be compiled.
func locked(s *site.Site) iter.Seq2[*service.Service, service.Locked] {
	return func(yield func(*service.Service, service.Locked) bool) {
		services := s.Services().List
		for i := range services {
			v := &services[i]
			if l, ok := s.Services().Locked(v.Name); ok && l.Stale(v) == "" && !yield(v, l) {
				return
			}
		}
	}
}

// manifest keeps an image, and says nothing else: the same image has the same one.
func manifest(image spec.Blob) oci.Manifest {
	return oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeService,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(),
		Layers: []oci.Descriptor{{MediaType: oci.TypeSquashfs, Digest: image.Digest, Size: image.Size}}}
}

// has reports whether a registry keeps an image. What it says of it does not count:
// nodes compare the image with their overlay.
func has(ctx context.Context, r *registry.Registry, image spec.Blob) (bool, error) {
	resp, err := r.Source().Manifest(ctx, oci.RepoService, Tag(image.Digest), "")
	if errors.Is(err, oci.ErrNotFound) {
		return false, nil
	}
	return err == nil && resp.Digest == oci.Digest(oci.Encode(manifest(image))), err
}

func push(ctx context.Context, r *registry.Registry, image spec.Blob, file string) error {
	d := oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: image.Digest, Size: image.Size}
	err := r.PutBlob(ctx, oci.RepoService, d, func() (io.ReadCloser, error) { return os.Open(file) })
	if err == nil {
		err = r.PutData(ctx, oci.RepoService, oci.Describe(oci.MediaTypeEmpty, oci.Empty))
	}
	if err == nil {
		_, err = r.PutManifest(ctx, oci.RepoService, oci.MediaTypeManifest, oci.Encode(manifest(image)), Tag(image.Digest))
	}
	return fault.In(err, "push its image")
}

// TextsOn returns, for each service that one of the nodes has, its files that a program of a layer is
// asked about, as of the site's own: with those on the first such node, since one may name the other.
// They are read from the image in the cache; where it is not there, that is said.
func (c *Source) TextsOn(ctx context.Context, s *site.Site, nodes []string) (sets [][]site.Text, err error) {
	services := s.Services().List
	for i := range services {
		v := &services[i]
		l, locked := s.Services().Locked(v.Name)
		at := slices.IndexFunc(s.Nodes(), func(n inventory.Node) bool { return v.Has(n) && slices.Contains(nodes, n.Name) })
		if at < 0 || !locked || !slices.ContainsFunc(v.Directories, mayBeAsked) {
			continue
		}
		if b, err := describe(c.file(l.Image.Digest)); err != nil || b != l.Image {
			c.Say("service %s: its image is not in this cache, so no program of the layer is asked about its files", v.Name)
			continue
		}
		texts, err := c.texts(ctx, v, l)
		if err != nil {
			return nil, ofService(v.Name, err)
		}
		sets = append(sets, slices.Concat(slices.Concat(s.TextsOn([]string{s.Nodes()[at].Name})...), texts))
	}
	return sets, nil
}

// asks reports whether a program is asked about a path.
func asks(name string) bool {
	argv, _ := configcheck.Question(name, "")
	return argv != nil
}

// mayBeAsked reports whether a directory, or a file, is one that such a program reads.
func mayBeAsked(d spec.ServiceDirectory) bool {
	below := []string{"", "x", "x.conf", "x.nft", "x.service"}
	return slices.ContainsFunc(below, func(name string) bool { return asks(path.Join(d.To, name)) })
}

// texts reads a service's files from its image.
func (c *Source) texts(ctx context.Context, v *service.Service, l service.Locked) (texts []site.Text, err error) {
	work, err := os.MkdirTemp(filepath.Join(c.Cache, "service"), "tmp-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	tree := filepath.Join(work, "tree")
	if err := image.Unpack(ctx, c.file(l.Image.Digest), tree); err != nil {
		return nil, err
	}
	for _, d := range v.Directories {
		from := filepath.Join(tree, d.From)
		err := filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			to := path.Join(d.To, strings.TrimPrefix(name, from))
			info, err := e.Info()
			if err != nil || !asks(to) || info.Size() > 1<<20 { // no program reads that much in time
				return err
			}
			data, err := os.ReadFile(name)
			texts = append(texts, site.Text{Path: to, Content: string(data), At: v.Places[d.To].String()})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return texts, nil
}
