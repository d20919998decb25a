// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/layerdiff"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// locked is the output of lock -o json.
type locked struct {
	File     string                  `json:"file"`
	Written  bool                    `json:"written"`
	Variants []release.LockedVariant `json:"variants"`
}

// locking is a lock of a site's packages: the flags.
type locking struct {
	release.Locking
	name       string // of the file
	update     bool
	advisories advisoryFlag
}

func (a *app) lockCommand() *cobra.Command {
	var x locking
	c := verb("lock", func(c *cobra.Command, names []string) error {
		if x.update && x.Missing {
			return cli.Usage("--update takes all, --missing what is not locked yet", "give either --update or --missing")
		}
		x.name = cmp.Or(x.name, lockName(names[0]))
		return x.run(c.Context(), a, names)
	})
	c.Flags().StringVar(&x.name, "lock", "", "lock file (caisson.lock beside the site when empty)")
	c.Flags().StringVar(&x.Cache, "cache", "", "directory kept between builds "+cacheDefault)
	c.Flags().BoolVar(&x.update, "update", false, "take what the archives have now")
	x.advisories.flag(c.Flags())
	c.Flags().BoolVar(&x.Missing, "missing", false, "take it for variants alone that are not locked yet")
	return c
}

func (x *locking) run(ctx context.Context, a *app, names []string) (err error) {
	if x.Cache, err = cacheDir(x.Cache); err != nil {
		return err
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	old, err := builder.ReadLock(x.name)
	if err != nil {
		return err
	}
	if by, err := x.advisories.open(old); err != nil {
		return err
	} else if by != nil {
		x.Advise = by.Locks
	}
	write := x.update || x.Missing || old == nil
	if write {
		if err := cli.Writable("--lock", x.name); err != nil {
			return err
		}
	}
	fresh, found, err := release.Lock(ctx, s, old, x.Locking)
	if err != nil {
		return err
	}
	out := locked{File: x.name, Written: write, Variants: found}
	if write {
		if err := fresh.Write(x.name); err != nil {
			return err
		}
	}
	err = printEach(a, out, out.Variants)
	if write {
		if err == nil {
			a.say("wrote %s", x.name)
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
	name := cmp.Or(f.lock, lockName(file))
	l, err := builder.ReadLock(name)
	if err == nil && l == nil && f.lock != "" {
		err = fmt.Errorf("lock %s: no such file", name)
	}
	return l, err
}

// lockName is the lock beside a site.
func lockName(file string) string { return filepath.Join(filepath.Dir(file), "caisson.lock") }

// advisoryFlag names a file of Debian's security tracker.
type advisoryFlag string

func (f *advisoryFlag) flag(fs *pflag.FlagSet) {
	fs.StringVar((*string)(f), "advisories", "", "`FILE` of Debian's security tracker (its data/json): say which "+
		"advisories the packages close, and how many are open")
}

// open reads the file, nil where none was named.
func (f advisoryFlag) open(lock *builder.LockFile) (*layerdiff.Advice, error) {
	if f == "" {
		return nil, nil
	}
	return layerdiff.OpenAdvice(string(f), lock)
}

// beside reads the file, for the lock beside a site.
func (f advisoryFlag) beside(site []string) (*layerdiff.Advice, error) {
	lock, err := builder.ReadLock(lockName(besideName(site)))
	if err != nil {
		return nil, err
	}
	return f.open(lock)
}

// layers is beside for what compares layers.
func (f advisoryFlag) layers(site []string) (plan.Advise, error) {
	if f == "" {
		return nil, nil
	}
	by, err := f.beside(site)
	if err != nil {
		return nil, err
	}
	return by.Layers, nil
}

// systemCache is kept between the builds of all who may write to it.
const systemCache = "/var/cache/caisson"

// cacheDefault says in a flag's help what [cacheDir] does.
const cacheDefault = "(" + systemCache + " when empty, or ~/.cache/caisson for users who may not write there)"

// cacheDir returns the directory that is kept between builds: the named one, the
// system's, or the user's own. Root of a user namespace is a user here.
func cacheDir(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	for _, dir := range []string{systemCache, filepath.Dir(systemCache)} {
		if unix.Access(dir, unix.W_OK) == nil {
			return systemCache, nil
		}
	}
	own, err := os.UserCacheDir()
	return filepath.Join(own, "caisson"), err
}
