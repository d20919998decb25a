// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/git"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

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
// lead to any commit that somebody signed once; a signature says nothing of where its
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
	return cli.WithHint(fmt.Errorf("%s leads back, to commit %s of %s; %s has seen %s of %s", s.Git.Ref(), abbreviate(tip.ID), tip.Date.Format(time.RFC3339), service.LockName, abbreviate(seen.Commit), seen.Date.Format(time.RFC3339)),
		"nodes keep what they have; 'caisson services rollback "+s.Name+" --to "+abbreviate(tip.ID)+"' goes back on purpose")
}

// looked is how many nodes of a service are asked for what was published of it.
const looked = 16

// Verify makes the image of each row again whose commit has to be signed, from that commit, and
// wants it to be the one that the lock names: somebody who may write the lock and push to the registry
// has no image of his own signed. A row that some node was published with is as it was signed, and
// git is not asked. published returns a node's overlay, nil where there is none.
func (c *Source) Verify(ctx context.Context, s *site.Site, published func(ctx context.Context, node string) (*spec.Overlay, error)) error {
	services := s.Services()
	for i := range services {
		v := &services[i]
		l, ok := s.Locked(v.Name)
		if v.Git.AllowedSigners == "" || !ok || l.Stale(v) != "" {
			continue // a node that has it cannot be compiled
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
func isPublished(ctx context.Context, s *site.Site, v *service.Service, l service.Locked, published func(context.Context, string) (*spec.Overlay, error)) (bool, error) {
	asked := 0
	for _, n := range s.Nodes() {
		if !v.Has(n) {
			continue
		}
		if asked++; asked > looked {
			break
		}
		o, err := published(ctx, n.Name)
		if err != nil {
			return false, err
		}
		if o == nil {
			continue
		}
		if slices.ContainsFunc(o.Services, func(p spec.Service) bool {
			return p.Name == v.Name && p.Commit == l.Commit && p.Image == l.Image && slices.Equal((&service.Service{Service: p}).From(), l.From)
		}) {
			return true, nil
		}
	}
	return false, nil
}
