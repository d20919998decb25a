// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/kubectl"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/cluster"
	"github.com/caisson-os/caisson/spec/site/plan"
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
	if err := found.Err(); err != nil {
		found.Write(a.err)
		if a.json() {
			return nil, err
		}
		return nil, cli.ErrInvalid // all of it is said
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

// fromCluster says that a site is read from objects of Kubernetes.
type fromCluster struct {
	kubectl.Cluster
	on   bool
	plan string
}

// flags gives a verb the flags, and lets it do without files where the cluster has the site. So many
// words stand behind the files.
func (f *fromCluster) flags(c *cobra.Command, behind int) {
	takes, flags := c.Args, c.Flags()
	c.Args = func(c *cobra.Command, args []string) error {
		if f.on && len(args) == behind {
			return nil
		}
		return takes(c, args)
	}
	flags.BoolVar(&f.on, "from-cluster", false, "read the site from the objects of a namespace")
	flags.StringVar(&f.Context, "context", "", "the `NAME` of the cluster in kubectl's configuration")
	flags.StringVar(&f.Namespace, "namespace", "", "the `NAME` of the namespace with the objects")
	flags.StringVar(&f.Program, "kubectl", "kubectl", "the `PROGRAM` that reads the cluster")
}

// besideName is the file beside which keys, locks and memory are.
func besideName(names []string) string {
	if len(names) == 0 {
		return "site"
	}
	return names[0]
}

// parse reads a site from files, or from objects.
func (f *fromCluster) parse(ctx context.Context, at time.Time, names []string) (*site.Site, *report.Report, error) {
	if !f.on {
		if f.Context != "" || f.Namespace != "" {
			return nil, nil, cli.Usage("--from-cluster reads a site from there", "--context and --namespace are for --from-cluster")
		}
		s, found := parseSite(at, names...)
		return s, found, nil
	}
	if f.plan != "" { // before anything is asked
		if _, err := preview.ActDigest(f.plan); err != nil {
			return nil, nil, fmt.Errorf("--plan: %w", err)
		}
	}
	return f.Parse(ctx, at, hostFiles{}, filepath.Dir(besideName(names)), names)
}

// load is parse for a verb that needs a good site.
func (f *fromCluster) load(ctx context.Context, a *app, names []string) (*site.Site, error) {
	s, found, err := f.parse(ctx, time.Now(), names)
	if err != nil {
		return nil, err
	}
	return a.good(s, found)
}

// loadNamed is load for a verb that is about something else than the site.
func (f *fromCluster) loadNamed(ctx context.Context, a *app, names []string) (*site.Site, error) {
	quiet := *a
	quiet.quiet = !a.detail
	return f.load(ctx, &quiet, names)
}

// agree shows what would be published from a cluster and asks whether it may be, unless its
// digest was given. It returns in the place of what; nil where nobody has to agree.
func (f *fromCluster) agree(ctx context.Context, a *app, w preview.Preview, nodes []publish.Node) (*spec.Floor, error) {
	if !f.on {
		return nil, nil
	}
	return w.Agree(ctx, f.plan, nodes, func(p *plan.Plan, digest string) error {
		p.Write(a.err)
		a.say("the plan is %s", digest)
		switch {
		case w.Publisher.Dry:
			return nil
		case !a.asks():
			return cli.Usage("--plan "+digest+" publishes it",
				"publishing from a cluster needs a confirmation, and there is no terminal to ask on")
		case !a.agrees("Publish this?"):
			return errors.New("nothing was published")
		}
		return nil
	})
}

// checkForCluster says what of files could not stand in objects.
func checkForCluster(names []string, found *report.Report) {
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // said by the reader of the site
		}
		cluster.Check(&report.Source{Name: name, Data: data}, found)
	}
}
