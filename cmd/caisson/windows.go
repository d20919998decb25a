// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/maintenance"
)

func (a *app) windowsCommand() *cobra.Command {
	var from, until, node string
	c := &cobra.Command{
		Use:   "windows FILE…",
		Short: "List the openings of a site's maintenance windows",
		Long: "List the openings of a site's maintenance windows.\n\n" +
			"Openings that overlap the time asked for are shown in full; adjoining ones are merged. Times are\n" +
			"given as YYYY-MM-DD, the start of that day in UTC, or as in 2026-11-21T22:00:00Z.",
		Example: "  caisson windows site.yaml\n  caisson windows site.yaml --from 2026-12-20 --until 2027-01-10 -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			now := time.Now()
			span := spec.Interval{From: now, To: maintenance.Horizon(now).To}
			if err := moment(&span.From, "--from", from); err != nil {
				return err
			}
			if from != "" {
				span.To = maintenance.Horizon(span.From).To
			}
			if err := moment(&span.To, "--until", until); err != nil {
				return err
			}
			if !span.From.Before(span.To) || span.To.Sub(span.From) > maxSpan {
				return cli.Usage("at most two years later", "--until must be after --from")
			}
			s, err := a.loadSite(names...)
			if err != nil {
				return err
			}
			m := s.Maintenance()
			if node != "" {
				if m, err = s.MaintenanceOf(node); err != nil {
					return err
				}
			}
			o := m.Openings(span)
			return a.show(o, func() {
				if len(o.Windows) == 0 {
					a.say("there is no MaintenanceWindow")
				}
				_ = o.Write(a.out) // the verb ends with what its output could not take
			})
		},
	}
	c.Flags().StringVar(&node, "node", "", "only windows that this node waits for")
	c.Flags().StringVar(&from, "from", "", "from when on; now when absent")
	c.Flags().StringVar(&until, "until", "", "until when; the first of the fourth month after when absent")
	return c
}

const maxSpan = 2 * 366 * 24 * time.Hour

// moment reads a time of the command line, if it was given.
func moment(into *time.Time, flag, text string) error {
	if text == "" {
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			*into = t
			return nil
		}
	}
	return cli.Usage("as in 2026-11-21 or 2026-11-21T22:00:00Z", "%s: %q is not a time", flag, text)
}
