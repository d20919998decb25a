// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/document"
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
