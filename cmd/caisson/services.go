// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/service"
)

// servicesUpdated is the output of services update, freeze, rollback and forward -o json.
type servicesUpdated struct {
	File     string           `json:"file"` // the lock
	Services []content.Change `json:"services"`
}

// services are the flags of a verb about a site's services, and its lock.
type services struct {
	*content.LockFile
	list   []*service.Service // that are meant
	site   *site.Site
	files  []string // of the site
	cache  string
	source *content.Source
}

// open reads a site and its lock, for the services of these names; all of the site without any.
func (r *services) open(a *app, names []string) (err error) {
	if r.site, err = a.loadSite(r.files...); err != nil {
		return err
	}
	if r.source, err = a.source(r.cache); err != nil {
		return err
	}
	if r.LockFile, err = content.OpenLock(r.site); err != nil {
		return err
	}
	r.list, err = r.Named(names)
	return err
}

// verifyServices makes images of signed commits again that were not published yet, before anything
// is signed that names them.
func verifyServices(ctx context.Context, source *content.Source, p *publish.Publisher, policy published.Policy, s *site.Site) error {
	if !slices.ContainsFunc(s.Services().List, func(v service.Service) bool { return v.Git.AllowedSigners != "" }) {
		return nil
	}
	fleet, err := p.Read(ctx, policy)
	if err != nil {
		return err
	}
	return source.Verify(ctx, s, fleet.Sent)
}

func (a *app) source(cache string) (*content.Source, error) {
	cache, err := builder.CacheDir(cache)
	return &content.Source{Cache: cache, Say: a.say}, err
}

// writeServices replaces the lock and prints what changed in it. It is written for what went
// well also where something did not.
func (a *app) writeServices(r *services, changes []content.Change, failed error) error {
	if err := r.Save(); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(printEach(a, servicesUpdated{r.Name, changes}, changes), failed)
}

// servicesVerb returns a verb about some of a site's services.
func (a *app) servicesVerb(name string, run func(context.Context, *services, []string) error) *cobra.Command {
	var r services
	c := verb("services "+name, func(c *cobra.Command, names []string) error {
		if err := r.open(a, names); err != nil {
			return err
		}
		return run(c.Context(), &r, names)
	})
	c.Flags().StringArrayVar(&r.files, "site", []string{"site.yaml"}, "the site's `FILE`; several are merged")
	c.Flags().StringVar(&r.cache, "cache", "", "directory kept between runs "+cacheDefault)
	return c
}

func (a *app) servicesUpdateCommand() *cobra.Command {
	return a.servicesVerb("update", func(ctx context.Context, r *services, _ []string) error {
		changes, err := r.Update(ctx, r.source, r.list)
		return a.writeServices(r, changes, err)
	})
}

// publishLater tells that a lock alone changes nothing, where it was written.
func (a *app) publishLater(r *services, err error) error {
	if err == nil {
		a.say("'caisson publish %s' brings it to the nodes", strings.Join(r.files, " "))
	}
	return err
}

func (a *app) servicesListCommand() *cobra.Command {
	return a.servicesVerb("list", func(_ context.Context, r *services, _ []string) error {
		out := r.List(r.list)
		return a.show(out, func() { content.WriteList(a.out, out) })
	})
}

func (a *app) servicesDiffCommand() *cobra.Command {
	var r services
	var look looking
	var from string
	var at asking
	c := verb("services diff", func(c *cobra.Command, names []string) error {
		if len(look.whom.site) == 0 {
			look.whom.site = []string{"site.yaml"}
		}
		r.files = look.whom.site
		if err := r.open(a, names); err != nil {
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
		out, err := r.Compare(c.Context(), r.source, r.list, fleet.Sent)
		if err != nil {
			return err
		}
		if at.Named() {
			if err := content.AddReported(c.Context(), out, at.Commits); err != nil {
				return err
			}
		}
		differs := slices.ContainsFunc(out, func(s content.Standing) bool { return s.Differs })
		return cmp.Or(printEach(a, out, out), content.Problems(out), drift(differs))
	})
	look.flags(a, c.Flags())
	at.flags(c.Flags())
	c.Flags().Lookup("at").Usage = "also compare what nodes report, by the fleet's service at `URL` ($CAISSON_FLEET)"
	c.Flags().Lookup("site").Usage = "the site's `FILE`, site.yaml when absent; several are merged"
	c.Flags().StringVar(&r.cache, "cache", "", "directory kept between runs "+cacheDefault)
	c.Flags().StringVar(&from, "from", "", "compare with `REF` instead of the site's registry")
	return c
}

// publishedServices opens what is published, nil where nothing is yet.
func (a *app) publishedServices(ctx context.Context, look *looking, from string) (*published.Fleet, error) {
	if parsed, err := oci.ParseRef(from); err == nil {
		if empty, err := a.empty(parsed, look.known); empty || err != nil {
			return nil, err
		}
	}
	fleet, err := look.open(ctx, a, from)
	if errors.Is(err, published.ErrUnpublished) {
		a.say(nothingYet, from)
		return nil, nil
	}
	return fleet, err
}

// frozen is why a service is to stay where it is.
func frozen(why changer) (service.Frozen, error) {
	by := why.by()
	if by.Reason == "" {
		return service.Frozen{}, cli.Usage("it is kept in services.lock for others", "--reason is missing")
	}
	return service.Frozen{Reason: by.Reason, Author: by.Author, Since: now()}, nil
}

func (a *app) servicesFreezeCommand() *cobra.Command {
	var why changer
	c := a.servicesVerb("freeze", func(_ context.Context, r *services, names []string) error {
		because, err := frozen(why)
		if err != nil {
			return err
		}
		change, err := content.Freeze(r.Lock, names[0], because)
		if err != nil {
			return err
		}
		return a.writeServices(r, []content.Change{change}, nil)
	})
	why.flags(c.Flags())
	requireFlags(c, "reason")
	return c
}

func (a *app) servicesRollbackCommand() *cobra.Command {
	var why changer
	var to string
	c := a.servicesVerb("rollback", func(ctx context.Context, r *services, _ []string) error {
		because, err := frozen(why)
		if err != nil {
			return err
		}
		change, err := r.source.Rollback(ctx, r.Lock, r.list[0], to, because)
		if err != nil {
			return err
		}
		return a.publishLater(r, a.writeServices(r, []content.Change{change}, nil))
	})
	c.Flags().StringVar(&to, "to", "", "go to this `COMMIT`: all of its digits, or seven at least of one that was fetched")
	why.flags(c.Flags())
	requireFlags(c, "reason")
	return c
}

func (a *app) servicesForwardCommand() *cobra.Command {
	return a.servicesVerb("forward", func(ctx context.Context, r *services, names []string) error {
		if !content.Thaw(r.Lock, names[0]) {
			a.say("service %s was not frozen", names[0])
		}
		changes, failed := r.Update(ctx, r.source, r.list)
		if failed != nil {
			a.say("service %s is not frozen, and stays at its commit until 'caisson services update'", names[0])
		}
		return a.publishLater(r, a.writeServices(r, changes, failed))
	})
}
