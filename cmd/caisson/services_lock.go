// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/service"
)

// listedService is one service, as services list prints it.
type listedService struct {
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

func (a *app) servicesListCommand() *cobra.Command {
	var f servicesFlags
	c := verb("services list", func(_ *cobra.Command, names []string) error {
		r, list, err := a.openServices(f, names)
		if err != nil {
			return err
		}
		out := []listedService{}
		for _, s := range list {
			out = append(out, r.listed(s))
		}
		return a.show(out, func() {
			t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			for _, s := range out {
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
		})
	})
	f.flags(c.Flags())
	return c
}

func (r *servicesRun) listed(s *service.Service) listedService {
	out := listedService{Name: s.Name, Unit: s.Unit, URL: s.Git.URL, Ref: s.Git.Ref(), Nodes: r.nodes(s)}
	if l, ok := r.lock.Services[s.Name]; ok {
		out.Commit, out.Image, out.Stale, out.Frozen = l.Commit, l.Image.Digest, l.Stale(s), l.Frozen
	}
	return out
}

func (r *servicesRun) nodes(s *service.Service) []string {
	out := []string{}
	for _, n := range r.site.Nodes() {
		if s.Has(n) {
			out = append(out, n.Name)
		}
	}
	return out
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
	var f servicesFlags
	var why changer
	c := verb("services freeze", func(_ *cobra.Command, names []string) error {
		because, err := frozen(why)
		if err != nil {
			return err
		}
		r, _, err := a.openServices(f, names)
		if err != nil {
			return err
		}
		change, err := content.Freeze(r.lock, names[0], because)
		if err != nil {
			return err
		}
		return a.writeServices(r, []content.Change{change}, nil)
	})
	f.flags(c.Flags())
	why.flags(c.Flags())
	return c
}

func (a *app) servicesRollbackCommand() *cobra.Command {
	var f servicesFlags
	var why changer
	var to string
	c := verb("services rollback", func(c *cobra.Command, names []string) error {
		because, err := frozen(why)
		if err != nil {
			return err
		}
		r, list, err := a.openServices(f, names)
		if err != nil {
			return err
		}
		change, err := r.source.Rollback(c.Context(), r.lock, list[0], to, because)
		if err != nil {
			return err
		}
		if err := a.writeServices(r, []content.Change{change}, nil); err != nil {
			return err
		}
		a.publishLater(f)
		return nil
	})
	c.Flags().StringVar(&to, "to", "", "go to this `COMMIT`: all of its digits, or seven at least of one that was fetched")
	f.flags(c.Flags())
	why.flags(c.Flags())
	return c
}

func (a *app) servicesForwardCommand() *cobra.Command {
	var f servicesFlags
	c := verb("services forward", func(c *cobra.Command, names []string) error {
		r, list, err := a.openServices(f, names)
		if err != nil {
			return err
		}
		if !content.Thaw(r.lock, names[0]) {
			a.say("service %s was not frozen", names[0])
		}
		changes, failed := r.update(c.Context(), list)
		if failed != nil {
			a.say("service %s is not frozen, and stays at its commit until 'caisson services update'", names[0])
		}
		if err := a.writeServices(r, changes, failed); err != nil {
			return err
		}
		a.publishLater(f)
		return nil
	})
	f.flags(c.Flags())
	return c
}
