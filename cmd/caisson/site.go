// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// hostFiles opens names as the user's shell would: relative ones from here.
// Site files name others relative to themselves, also upwards, which
// os.DirFS does not allow.
type hostFiles struct{}

func (hostFiles) Open(name string) (fs.File, error) { return os.Open(name) }

// loadSite reads site files for a verb that needs them to be good. Errors and
// warnings are reported as talk; the verb ends with the error it gets.
func (a *app) loadSite(names ...string) (*site.Site, error) {
	s, found := site.Parse(hostFiles{}, names...)
	if found.Err() != nil {
		found.Write(a.err)
		return nil, cli.ErrInvalid
	}
	for _, p := range found.Problems {
		switch p.Severity {
		case report.Warning:
			a.say("warning: %s", p)
		case report.Note:
			a.sayDetail("note: %s", p)
		}
	}
	return s, nil
}
