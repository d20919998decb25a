// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

func (a *app) servicesCommand() *cobra.Command {
	return group("services", a.servicesUpdateCommand(), a.servicesListCommand(), a.servicesDiffCommand(), a.servicesFreezeCommand(),
		a.servicesRollbackCommand(), a.servicesForwardCommand())
}

// servicesUpdated is the output of services update, freeze, rollback and forward -o json.
type servicesUpdated struct {
	File     string           `json:"file"` // the lock
	Services []content.Change `json:"services"`
}

// servicesFlags say which site's services a verb is about.
type servicesFlags struct {
	site  []string
	cache string
}

func (s *servicesFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.site, "site", []string{"site.yaml"}, "the site's `FILE`; several are merged")
	f.StringVar(&s.cache, "cache", "", "directory kept between runs "+cacheDefault)
}

// servicesRun is a verb at work on a lock.
type servicesRun struct {
	site   *site.Site
	lock   *service.Lock
	was    []byte // the lock, as it was read
	source *content.Source
}

// openServices reads a site and its lock, and returns the services of these names too; all of
// the site without any.
func (a *app) openServices(f servicesFlags, names []string) (*servicesRun, []*service.Service, error) {
	s, err := a.loadSite(f.site...)
	if err != nil {
		return nil, nil, err
	}
	source, err := a.source(f.cache)
	if err != nil {
		return nil, nil, err
	}
	r := &servicesRun{site: s, lock: s.Services().CopyLock(), source: source}
	if r.was, err = r.lock.Encode(); err != nil {
		return nil, nil, err
	}
	list, err := r.named(names)
	return r, list, err
}

// verifyServices makes images of signed commits again that were not published yet, before anything
// is signed that names them.
func verifyServices(ctx context.Context, source *content.Source, p *publish.Publisher, policy publish.Policy, s *site.Site) error {
	if !slices.ContainsFunc(s.Services().List, func(v service.Service) bool { return v.Git.AllowedSigners != "" }) {
		return nil
	}
	fleet, err := p.Read(ctx, policy)
	if err != nil {
		return err
	}
	rows, err := fleet.Nodes(ctx)
	if err != nil {
		return err
	}
	return source.Verify(ctx, s, func(ctx context.Context, node string) (*spec.Overlay, error) {
		if _, is := rows[node]; !is {
			return nil, nil
		}
		return fleet.Overlay(ctx, node)
	})
}

func (a *app) source(cache string) (*content.Source, error) {
	cache, err := cacheDir(cache)
	return &content.Source{Cache: cache, Now: now(), Say: a.say}, err
}

// named returns the services with these names; all of the site without any.
func (r *servicesRun) named(names []string) (out []*service.Service, err error) {
	all := r.site.Services().List
	known := []string{}
	for i := range all {
		known = append(known, all[i].Name)
		if len(names) == 0 || slices.Contains(names, all[i].Name) {
			out = append(out, &all[i])
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			hint := "'caisson services list' lists them"
			if like := plain.Nearest(name, slices.Values(known)); like != "" {
				hint = "did you mean " + like + "?"
			}
			return nil, cli.Usage(hint, "the site has no service %q", name)
		}
	}
	return out, nil
}

// writeServices replaces the lock and prints what changed in it. It is written for what went
// well also where something did not.
func (a *app) writeServices(r *servicesRun, changes []content.Change, failed error) error {
	for name := range r.lock.Services {
		if !slices.ContainsFunc(r.site.Services().List, func(s service.Service) bool { return s.Name == name }) {
			delete(r.lock.Services, name) // it left the site
		}
	}
	data, err := r.lock.Encode()
	if err == nil {
		err = r.unchanged()
	}
	if err == nil {
		err = durable.WriteFile(r.site.Services().LockFile, data, 0o644)
	}
	if err != nil {
		return errors.Join(failed, err)
	}
	out := servicesUpdated{File: r.site.Services().LockFile, Services: changes}
	return errors.Join(printEach(a, out, changes), failed)
}

// unchanged refuses to write over what another verb wrote to the lock meanwhile: an update
// may take minutes, and must not end a freeze.
func (r *servicesRun) unchanged() error {
	now, err := readServicesLock(r.site.Services().LockFile)
	if err != nil {
		return err
	}
	is, err := now.Encode()
	if err == nil && !bytes.Equal(is, r.was) {
		err = cli.WithHint(fmt.Errorf("%s has changed meanwhile, and stays as it is", r.site.Services().LockFile), "run this again")
	}
	return err
}

func (a *app) servicesUpdateCommand() *cobra.Command {
	var f servicesFlags
	c := verb("services update", func(c *cobra.Command, names []string) error {
		r, list, err := a.openServices(f, names)
		if err != nil {
			return err
		}
		changes, err := r.update(c.Context(), list)
		return a.writeServices(r, changes, err)
	})
	f.flags(c.Flags())
	return c
}

func (r *servicesRun) update(ctx context.Context, list []*service.Service) ([]content.Change, error) {
	changes := []content.Change{}
	var failed []error
	for _, s := range list {
		change, err := r.source.Update(ctx, r.lock, s)
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

// publishLater tells that a lock alone changes nothing.
func (a *app) publishLater(f servicesFlags) {
	a.say("'caisson publish %s' brings it to the nodes", strings.Join(f.site, " "))
}
