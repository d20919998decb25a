// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
)

// hostFiles opens names as the user's shell would: relative ones from here.
// Site files name others relative to themselves, also upwards, which
// os.DirFS does not allow.
type hostFiles struct{}

// stdin is the name of a site that was given as "-": one that no shell makes, in
// the present directory.
const stdin = "<stdin>"

func (hostFiles) Open(name string) (fs.File, error) {
	if name == stdin {
		return os.Stdin, nil
	}
	return os.Open(name)
}

// parseSite reads site files as they are named on the command line.
func parseSite(at time.Time, names ...string) (*site.Site, *report.Report) {
	return site.ParseAt(at, hostFiles{}, siteNames(names)...)
}

// siteNames are the names of site files for hostFiles.
func siteNames(names []string) []string {
	names = slices.Clone(names)
	if i := slices.Index(names, "-"); i >= 0 {
		names[i] = stdin
	}
	return names
}

// loadSite reads site files for a verb that needs them to be good. Errors and
// warnings are reported as talk; the verb ends with the error it gets.
func (a *app) loadSite(names ...string) (*site.Site, error) {
	return a.loadSiteAt(time.Now(), names...)
}

// loadNamed reads site files for a verb that shows settings, or takes keys, labels or names, and
// repeats no warning: the verbs that publish, build or validate say them.
func (a *app) loadNamed(names ...string) (*site.Site, error) {
	quiet := *a
	quiet.quiet = !a.detail
	return quiet.loadSite(names...)
}

// loadSiteAt is loadSite for a date: maintenance is expanded from there.
func (a *app) loadSiteAt(at time.Time, names ...string) (*site.Site, error) {
	return a.good(parseSite(at, names...))
}

// good says what was found of a site, and returns it where that is not an error.
func (a *app) good(s *site.Site, found *report.Report) (*site.Site, error) {
	if found.Err() != nil {
		found.Write(a.err)
		return nil, cli.ErrInvalid
	}
	for _, p := range found.Problems {
		switch p.Severity {
		case report.Warning:
			a.warn(p.String())
		case report.Note:
			a.sayDetail("note: %s", p)
		}
	}
	for _, w := range s.NeverOpen() {
		a.warn(fmt.Sprintf("the window %s does not open in the next months: what waits for it does not happen", w))
	}
	return s, nil
}

// validation is the output of validate -o json.
type validation struct {
	Valid    bool             `json:"valid"`
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
	Problems []report.Problem `json:"problems"`
}

func (a *app) validateCommand() *cobra.Command {
	var strict, forCluster bool
	var from fromCluster
	c := verb("validate", func(c *cobra.Command, names []string) error {
		s, found, err := from.parse(c.Context(), time.Now(), names)
		if err != nil {
			return err
		}
		if forCluster {
			checkForCluster(names, found)
		}
		if s != nil {
			preview.Check(s, preview.Beside{Lock: lockName(besideName(names)), Memory: memoryName(besideName(names))}, found)
		}
		found.Sort()
		if strict {
			found.Strict()
		}
		errors, warnings := found.Count(report.Error), found.Count(report.Warning)
		v := validation{Valid: errors == 0, Errors: errors, Warnings: warnings, Problems: append([]report.Problem{}, found.Problems...)}
		err = a.show(v, func() {
			if a.quiet {
				found.DropNotes()
			}
			found.Write(a.err)
			summary := fmt.Sprintf("%s, %s", plain.Count(errors, "error"), plain.Count(warnings, "warning"))
			if errors == 0 {
				summary = fmt.Sprintf("valid: %s, %s, %s", s.Name(), plain.Count(len(s.Nodes()), "node"), summary)
			}
			cli.Printf(a.out, "%s\n", summary)
		})
		if err == nil && errors > 0 {
			return cli.ErrInvalid
		}
		return err
	})
	c.Flags().BoolVar(&strict, "strict", false, "warnings are errors")
	c.Flags().BoolVar(&forCluster, "for-cluster", false, "also list what cannot be in objects of Kubernetes")
	from.flags(c, 0)
	return c
}

func (a *app) schemaCommand() *cobra.Command {
	var crd bool
	c := verb("schema", func(_ *cobra.Command, args []string) error {
		if crd {
			text, err := cluster.Definitions()
			if err == nil {
				_, err = a.out.Write(text)
			}
			return err
		}
		text, err := document.Schema(args[0])
		if err != nil {
			return cli.Usage("one of "+strings.Join(document.SchemaNames(), ", "), "%w", err)
		}
		_, err = a.out.Write(text)
		return err
	})
	c.Use += " " + strings.Join(document.SchemaNames(), "|")
	c.Args = func(c *cobra.Command, args []string) error {
		if crd {
			return cobra.NoArgs(c, args)
		}
		return takes("NAME")(c, args)
	}
	c.ValidArgs = document.SchemaNames()
	c.Flags().BoolVar(&crd, "crd", false, "print the CustomResourceDefinitions of a cluster")
	return c
}

func (a *app) explainCommand() *cobra.Command {
	var node, other, key string
	var labels, conditions []string
	c := verb("explain", func(_ *cobra.Command, names []string) error {
		set, err := parseLabels(labels)
		if err != nil {
			return err
		}
		switch all := key != "" || len(conditions) > 0; {
		case node == "" && !all:
			return cli.Usage("name the node to explain", "--node is missing")
		case all && node+other != "" || key != "" && len(conditions) > 0 || len(labels) > 0 && node == "" || other != "" && len(labels) > 0:
			return cli.Usage("--node with --label or --against, or --key, or --where", "these do not go together")
		}
		s, err := a.loadNamed(names...)
		switch {
		case err != nil:
			return err
		case key != "":
			return a.uses(s, key)
		case len(conditions) > 0:
			return a.where(s, conditions)
		case other != "":
			return a.against(s, node, other)
		}
		e, err := s.Explain(node, set)
		if err != nil {
			return err
		}
		if !e.Known && len(set) == 0 && len(s.Nodes()) > 0 {
			a.say("warning: the site has no node %q: this is what it would get; %s", node, inventory.DidYouMean(node, s.Nodes()))
		}
		return a.print(e)
	})
	c.Flags().StringVar(&node, "node", "", "the node's name")
	c.Flags().StringVar(&node, "host", "", "the same as --node")
	c.Flags().StringArrayVar(&labels, "label", nil, "a label KEY=VALUE it has, over the site's; may be repeated")
	c.Flags().StringVar(&other, "against", "", "show in what the node differs from the node with this `NAME`")
	c.Flags().StringVar(&key, "key", "", "list the values of the setting KIND/`KEY` on all nodes")
	c.Flags().StringArrayVar(&conditions, "where", nil,
		"list the nodes that have the setting KIND/KEY, or `KIND/KEY=VALUE`; several must all hold")
	return c
}

func parseLabels(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, cli.Usage("write --label KEY=VALUE", "%q is not a label", l)
		}
		out[k] = v
	}
	return out, nil
}

func (a *app) windowsCommand() *cobra.Command {
	var from, until, node string
	c := verb("windows", func(_ *cobra.Command, names []string) error {
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
		s, err := a.loadNamed(names...)
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
	})
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

func (a *app) operationsCommand() *cobra.Command {
	var node string
	c := verb("operations", func(_ *cobra.Command, names []string) error {
		if node == "" {
			return cli.Usage("name the node", "--node is missing")
		}
		s, err := a.loadNamed(names...)
		if err != nil {
			return err
		}
		o, err := s.Overlay(node, "")
		if err != nil {
			return err
		}
		m := spec.Maintenance{Operations: []spec.Operation{}}
		if o.Maintenance != nil {
			m = *o.Maintenance
		}
		return a.show(m, func() {
			if len(m.Operations)+len(m.Realtime) == 0 {
				a.say("%s has no operations", node)
			}
			maintenance.WriteOperations(a.out, m)
		})
	})
	c.Flags().StringVar(&node, "node", "", "the node's name")
	return c
}

// against prints in what a node differs from another one.
func (a *app) against(s *site.Site, node, other string) error {
	var both [2]*explain.Explanation
	for i, name := range []string{node, other} {
		e, err := s.Explain(name, nil)
		if err != nil {
			return err
		}
		if !e.Known {
			return cli.Usage(inventory.DidYouMean(name, s.Nodes()), "the site has no node %q", name)
		}
		both[i] = e
	}
	found := both[0].Against(both[1])
	return cmp.Or(a.show(found, func() {
		found.Write(a.out, node, other)
		if len(found) == 0 {
			a.say("%s and %s have the same settings", node, other)
		}
	}), drift(len(found) > 0))
}

// uses prints the values that a setting has on the site's nodes.
func (a *app) uses(s *site.Site, key string) error {
	nodes, err := s.Explained()
	if err != nil {
		return err
	}
	found, err := explain.UsesOf(key, nodes)
	if err != nil {
		return err
	}
	return a.print(found)
}

// where prints the nodes that meet every condition.
func (a *app) where(s *site.Site, conditions []string) error {
	nodes, err := s.Explained()
	if err != nil {
		return err
	}
	all, none, err := explain.All(conditions, nodes)
	if err != nil {
		return err
	}
	if none != "" {
		a.say("%s", none)
	}
	return a.show(all, func() {
		for _, name := range all {
			cli.Printf(a.out, "%s\n", name)
		}
	})
}
