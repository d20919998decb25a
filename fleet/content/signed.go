// SPDX-License-Identifier: Apache-2.0

package content

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-os/caisson/fleet/git"
	"github.com/caisson-os/caisson/internal/cli"
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
// one that the lock has seen. Whoever may push to a server can have a branch or a tag
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
