// SPDX-License-Identifier: Apache-2.0

// Package content makes what the nodes have of a site's services: from a repository
// of git to the lock beside the site, and to one image a commit in the registry.
//
// [Source] asks git and builds images; a cache keeps both. A lock names an image by
// its digest, and overlays do, too. So [Push] asks git for nothing that the registry
// has already: a repository that is gone stops updates, and no publish. [Source.Verify] does where
// commits have to be signed, of what was not published yet.
// cmd/caisson and fleet/service import it.
package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/git"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Source says where content comes from.
type Source struct {
	Cache  string     // directory that is kept
	Limits git.Limits // zero is git.Usual
	Say    func(format string, args ...any)
}

// Glance are the limits of who asks for heads alone, and only shows them.
var Glance = git.Limits{Time: time.Minute, Memory: 1 << 30, Bytes: 1 << 30, Files: git.Usual.Files, Size: git.Usual.Size}

// followed says where a service's branch, tag or commit leads.
type followed struct {
	tip git.Commit // what it names
	at  git.Commit // the last commit on the way there that changed the service's files

	frozen *service.Frozen // why it stays there; nil follows on
}

// head returns where a service is led now.
func head(ctx context.Context, r *git.Repository, s *service.Service) (f followed, err error) {
	id := s.Git.Commit
	switch {
	case s.Git.Branch != "":
		id, err = r.Follow(ctx, "heads/"+s.Git.Branch)
	case s.Git.Tag != "":
		id, err = r.Follow(ctx, "tags/"+s.Git.Tag)
	default:
		err = r.Have(ctx, id)
	}
	if err == nil {
		f.tip, err = r.Show(ctx, id)
	}
	if err == nil {
		f.at, err = r.Last(ctx, id, s.From())
	}
	return f, err
}

// Head asks for the commit that a service follows now, and builds nothing.
func (c *Source) Head(ctx context.Context, s *service.Service) (git.Commit, error) {
	r, err := git.Open(ctx, c.Cache, s.Git.URL, c.Limits)
	if err != nil {
		return git.Commit{}, err
	}
	defer r.Close() // nothing was written through it
	f, err := head(ctx, r, s)
	return f.at, err
}

// lock builds the image of a commit and returns the row that names it.
func (c *Source) lock(ctx context.Context, r *git.Repository, s *service.Service, at git.Commit) (l service.Locked, err error) {
	l = service.Locked{URL: s.Git.URL, Ref: s.Git.Ref(), From: s.From(), Commit: at.ID, Date: at.Date}
	l.Image, err = c.build(ctx, r, s, l)
	return l, err
}

// build makes the image of a row, whose commit has to be signed where the service has
// signers, and keeps it under its digest.
func (c *Source) build(ctx context.Context, r *git.Repository, s *service.Service, l service.Locked) (_ spec.Blob, err error) {
	if err := signed(ctx, r, s, l.Commit); err != nil {
		return spec.Blob{}, err
	}
	dir := filepath.Join(c.Cache, "service")
	if err := ownfiles.Folder(dir); err != nil { // a repository may be for some eyes only
		return spec.Blob{}, err
	}
	work, err := os.MkdirTemp(dir, "tmp-")
	if err != nil {
		return spec.Blob{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	tree, out := filepath.Join(work, "tree"), filepath.Join(work, "image")
	if err := errors.Join(os.Mkdir(tree, 0o755), os.Chmod(tree, 0o755)); err != nil {
		return spec.Blob{}, err
	}
	date := time.Unix(max(l.Date.Unix(), 1), 0)
	single := func(from string) bool { // it has the path as one file
		return slices.ContainsFunc(s.Directories, func(d spec.ServiceDirectory) bool { return d.File && d.From == from })
	}
	if err := r.Files(ctx, git.Commit{ID: l.Commit, Date: date}, l.From, single, tree); err != nil {
		return spec.Blob{}, err
	}
	if err := image.Squashfs(ctx, tree, out, image.Options{Level: image.LevelOften, Epoch: date.Unix(), AsRoot: true}); err != nil {
		return spec.Blob{}, err
	}
	b, err := describe(out)
	if err == nil {
		err = durable.Rename(out, c.file(b.Digest))
	}
	return b, err
}

func (c *Source) file(of string) string {
	return filepath.Join(c.Cache, "service", digest.Hex(of)+".squashfs")
}

func describe(name string) (spec.Blob, error) {
	f, err := os.Open(name)
	if err != nil {
		return spec.Blob{}, err
	}
	defer f.Close() // only read
	h := sha256.New()
	n, err := io.Copy(h, f)
	return spec.Blob{Digest: digest.From(h), Size: n}, err
}

// image returns the file with the image of a row, verified. What the cache has lost is
// made again, and must come out the same.
func (c *Source) image(ctx context.Context, s *service.Service, l service.Locked) (string, error) {
	name := c.file(l.Image.Digest)
	switch b, err := describe(name); {
	case err == nil && b == l.Image:
		return name, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	return c.again(ctx, s, l)
}

// again makes the image of a row from its commit, and returns the file with it.
func (c *Source) again(ctx context.Context, s *service.Service, l service.Locked) (string, error) {
	r, err := git.Open(ctx, c.Cache, s.Git.URL, c.Limits)
	if err != nil {
		return "", err
	}
	defer r.Close() // nothing was written through it
	if err := r.Have(ctx, l.Commit); err != nil {
		return "", err
	}
	b, err := c.build(ctx, r, s, l)
	if err == nil && b != l.Image {
		err = cli.WithHint(fmt.Errorf("the image of commit %s is %s here, and %s in %s", l.Commit, b.Digest, l.Image.Digest, service.LockName),
			"another mksquashfs made it, or somebody changed the lock, which version control shows: publish where it was "+
				"written, or take the row out, and 'caisson services update' here")
	}
	return c.file(l.Image.Digest), err
}

// abbreviate shortens the name of a commit, for people.
func abbreviate(id string) string { return id[:min(len(id), 12)] }

func ofService(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("service %s: %w", name, err)
	}
	return err
}

// signed demands a signature of a commit where a service has signers.
func signed(ctx context.Context, r *git.Repository, s *service.Service, id string) error {
	if s.Git.AllowedSigners == "" {
		return nil
	}
	name, err := filepath.Abs(s.Git.AllowedSigners)
	if err != nil {
		return err
	}
	if _, err := os.Stat(name); err != nil {
		return err
	}
	return r.Signed(ctx, id, name)
}

// onward demands, where a service has signers, that a signed commit leads on from the
// one that the lock has seen. A pusher to a server can have a branch or a tag
// lead to any commit that somebody signed once; a signature does not say where its
// commit is to be found. Only the one who keeps the site goes back: the site names a
// commit, or another branch, and so does a rollback.
func onward(ctx context.Context, r *git.Repository, s *service.Service, was service.Locked, tip git.Commit) error {
	if s.Git.AllowedSigners == "" {
		return nil
	}
	if err := signed(ctx, r, s, tip.ID); err != nil {
		return err
	}
	if s.Git.Commit != "" || was.Commit == "" || was.URL != s.Git.URL || was.Ref != s.Git.Ref() {
		return nil
	}
	seen := was.Signed
	if seen == nil { // it had no signers then
		seen = &service.Signed{Commit: was.Commit, Date: was.Date}
	}
	switch err := r.Have(ctx, seen.Commit); {
	case errors.Is(err, git.ErrGone): // no server has it any more: dates decide
	case err != nil:
		return err
	default:
		if leads, err := r.Leads(ctx, seen.Commit, tip.ID); leads || err != nil {
			return err
		}
		if back, err := r.Leads(ctx, tip.ID, seen.Commit); err != nil {
			return err
		} else if back {
			return backward(s, tip, seen)
		}
	}
	if !tip.Date.After(seen.Date) {
		return backward(s, tip, seen)
	}
	return nil
}

func backward(s *service.Service, tip git.Commit, seen *service.Signed) error {
	return cli.WithHint(fmt.Errorf("%s leads back, to commit %s of %s; %s has seen %s of %s", s.Git.Ref(),
		abbreviate(tip.ID), tip.Date.Format(time.RFC3339), service.LockName, abbreviate(seen.Commit), seen.Date.Format(time.RFC3339)),
		"nodes keep what they have; 'caisson services rollback "+s.Name+" --to "+abbreviate(tip.ID)+"' goes back on purpose")
}

// looked is how many nodes of a service are asked for what was published of it.
const looked = 16

// Verify makes the image of each row again whose commit has to be signed, from that commit, and
// wants it to be the one that the lock names: somebody who may write the lock and push to the registry
// has no image of his own signed. A row that some node was published with is as it was signed, and
// git is not asked. published returns a node's overlay, nil where there is none.
func (c *Source) Verify(ctx context.Context, s *site.Site, published Published) error {
	for v, l := range locked(s) {
		if v.Git.AllowedSigners == "" {
			continue
		}
		known, err := isPublished(ctx, s, v, l, published)
		if err == nil && !known {
			_, err = c.again(ctx, v, l)
		}
		if err != nil {
			return ofService(v.Name, err)
		}
	}
	return nil
}

// isPublished reports whether one of the first nodes that have a service was given a row of it.
func isPublished(ctx context.Context, s *site.Site, v *service.Service, l service.Locked, published Published) (bool, error) {
	nodes := nodesWith(s, v)
	for _, name := range nodes[:min(len(nodes), looked)] {
		o, err := published(ctx, name)
		if err != nil {
			return false, err
		}
		if o != nil && slices.ContainsFunc(o.Services, func(p spec.Service) bool {
			return p.Name == v.Name && p.Commit == l.Commit && p.Image == l.Image && slices.Equal((&service.Service{Service: p}).From(), l.From)
		}) {
			return true, nil
		}
	}
	return false, nil
}
