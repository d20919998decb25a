// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
)

// locked is the output of lock -o json.
type locked struct {
	File     string                  `json:"file"`
	Written  bool                    `json:"written"`
	Variants []release.LockedVariant `json:"variants"`
}

func (a *app) lockCommand() *cobra.Command {
	var name, cache string
	var update, missing bool
	var advisories advisoryFlag
	c := &cobra.Command{
		Use:   "lock FILE…",
		Short: "Lock every package of the layers: version, architecture, sha256",
		Long: "Lock every package of the layers: version, architecture, sha256.\n\n" +
			"Without a lock one is written. With one, what the archives would change is printed and the\n" +
			"exit code is 3 when there is something; --update takes it. --missing locks the variants that have\n" +
			"no lock of their packages as they are asked for now, and leaves the others as they are.",
		Example: "  caisson lock site.yaml\n  caisson lock --update site.yaml\n  caisson lock --missing site.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			if update && missing {
				return cli.Usage("--update takes all, --missing what is not locked yet", "give either --update or --missing")
			}
			name = cmp.Or(name, lockName(names[0]))
			return a.lock(c.Context(), name, release.Locking{Cache: cache, Missing: missing}, update, advisories, names)
		},
	}
	c.Flags().StringVar(&name, "lock", "", "lock file (caisson.lock beside the site when empty)")
	c.Flags().StringVar(&cache, "cache", "", "directory kept between builds "+cacheDefault)
	c.Flags().BoolVar(&update, "update", false, "take what the archives have now")
	advisories.flag(c.Flags())
	c.Flags().BoolVar(&missing, "missing", false, "take it for variants alone that are not locked yet")
	return c
}

func (a *app) lock(ctx context.Context, name string, how release.Locking, update bool, advisories advisoryFlag, names []string) (err error) {
	if how.Cache, err = cacheDir(how.Cache); err != nil {
		return err
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	old, err := builder.ReadLock(name)
	if err != nil {
		return err
	}
	if by, err := advisories.open(old); err != nil {
		return err
	} else if by != nil {
		how.Advise = by.Locks
	}
	write := update || how.Missing || old == nil
	if write {
		if err := writable("--lock", name); err != nil {
			return err
		}
	}
	fresh, found, err := release.Lock(ctx, s, old, how)
	if err != nil {
		return err
	}
	out := locked{File: name, Written: write, Variants: found}
	if write {
		if err := fresh.Write(name); err != nil {
			return err
		}
	}
	err = a.show(out, func() {
		for _, v := range out.Variants {
			v.Write(a.out)
		}
	})
	if write {
		if err == nil {
			a.say("wrote %s", name)
		}
		return err
	}
	return cmp.Or(err, drift(slices.ContainsFunc(found, release.LockedVariant.Differs)))
}

// readLocks returns the lock that a build is held to, nil for the newest packages.
func readLocks(f buildFlags, file string) (*builder.LockFile, error) {
	if f.fresh {
		return nil, nil
	}
	name := f.lock
	name = cmp.Or(name, lockName(file))
	l, err := builder.ReadLock(name)
	if err == nil && l == nil && f.lock != "" {
		err = fmt.Errorf("lock %s: no such file", name)
	}
	return l, err
}

// lockName is the lock beside a site.
func lockName(file string) string { return filepath.Join(filepath.Dir(file), "caisson.lock") }
