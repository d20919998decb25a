// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site"
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
func parseSite(files fs.FS, at time.Time, names ...string) (*site.Site, *report.Report) {
	names = slices.Clone(names)
	for i, name := range names {
		if name == "-" {
			names[i] = stdin
		}
	}
	return site.ParseAt(at, files, names...)
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
	return a.good(parseSite(hostFiles{}, at, names...))
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
