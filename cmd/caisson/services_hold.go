// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/service"
)

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
	c := &cobra.Command{
		Use:     "freeze NAME --reason TEXT",
		Short:   "Freeze a service at its commit",
		Long:    "Freeze a service at its commit: 'caisson services update' leaves it alone until 'caisson services forward'.",
		Example: "  caisson services freeze prometheus --reason 'rules are being reviewed'",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
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
		},
	}
	f.flags(c.Flags())
	why.flags(c.Flags())
	return c
}

func (a *app) servicesRollbackCommand() *cobra.Command {
	var f servicesFlags
	var why changer
	var to string
	c := &cobra.Command{
		Use:   "rollback NAME [--to COMMIT] --reason TEXT",
		Short: "Roll a service back to an earlier commit, and freeze it there",
		Long: "Roll a service back to an earlier commit, and freeze it there: the one before that changed its directories, or any that the\n" +
			"repository has. 'caisson services forward' ends it. Nodes go back when the site is published.",
		Example: "  caisson services rollback prometheus --reason 'alerts are lost' && caisson publish site.yaml --key keys/operator.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
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
		},
	}
	c.Flags().StringVar(&to, "to", "", "go to this `COMMIT`: all of its digits, or seven at least of one that was fetched")
	f.flags(c.Flags())
	why.flags(c.Flags())
	return c
}

func (a *app) servicesForwardCommand() *cobra.Command {
	var f servicesFlags
	c := &cobra.Command{
		Use:   "forward NAME",
		Short: "End a freeze or a rollback of a service",
		Long: "End a freeze or a rollback of a service, which is then updated at once. Where git cannot be asked it\n" +
			"stays at its commit, and the next 'caisson services update' updates it.",
		Example: "  caisson services forward prometheus && caisson publish site.yaml --key keys/operator.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			r, list, err := a.openServices(f, names)
			if err != nil {
				return err
			}
			if !content.Thaw(r.lock, names[0]) {
				a.say("service %s was not frozen", names[0])
			}
			changes, err := r.update(c.Context(), list)
			if err := a.writeServices(r, changes, err); err != nil {
				return err
			}
			a.publishLater(f)
			return nil
		},
	}
	f.flags(c.Flags())
	return c
}
