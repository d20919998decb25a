// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Problems reports what is wrong with the key files of a site: those that publish would
// refuse. Files that the site does not name, and that are taken all the same, are
// warnings: they may come later.
func Problems(s *site.Site) []report.Problem {
	_, problems := read(s)
	if err := SameFleet(s); err != nil {
		problems = append(problems, report.Problem{At: s.NameAt(), Path: "metadata.name", Severity: report.Error, Rule: "key", Message: err.Error(), Hint: hintOf(err)})
	}
	return problems
}

// held is a key that was read, and where it was named.
type held struct {
	role string
	file site.File
}

// read reads the key files of a site by their roles. A key has one role, and stands in
// it once.
func read(s *site.Site) (byRole map[string][]sign.Verifier, problems []report.Problem) {
	byRole = map[string][]sign.Verifier{}
	seen := map[string]held{}
	for _, role := range []string{site.Root, site.Operator, site.Release, site.Epoch, site.Attestation, site.Rescue} {
		files, named := s.KeyFiles(role)
		for _, f := range files {
			found, err := keys.Publics([]string{f.Name})
			if err != nil {
				unused := role == site.Attestation || role == site.Release && !s.HasLayer() // nothing that is published is verified with it
				if !unused || !errors.Is(err, fs.ErrNotExist) {
					problems = append(problems, unread(s, role, f, named, err))
				}
				continue
			}
			if other, twice := seen[found[0].ID()]; twice {
				problems = append(problems, again(role, f, other))
				continue
			}
			seen[found[0].ID()] = held{role, f}
			byRole[role] = append(byRole[role], found[0])
		}
	}
	return byRole, problems
}

// unread is the problem of a key file that cannot be read.
func unread(s *site.Site, role string, f site.File, named bool, err error) report.Problem {
	p := report.Problem{At: f.At, Path: f.Path, Severity: report.Error, Rule: "key", Message: err.Error(), Hint: "a public key as 'caisson keys generate' writes it"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		generate := "'caisson keys generate " + strings.TrimSuffix(f.Name, ".pub") + "' makes "
		p.Hint = generate + "one"
		if _, err := os.Stat(s.Trust().Chain); err == nil {
			p.Hint = "take it from version control or from who changed the keys last; " + generate + "another one, which counts after 'caisson keys rotate'"
		}
		if !named {
			p.Severity, p.Message = report.Warning, "the site names no "+role+" key, and "+f.Name+" is not there"
		}
	case hintOf(err) != "":
		p.Hint = hintOf(err)
	}
	return p
}

func hintOf(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}

// again is the problem of a key that was named before.
func again(role string, f site.File, other held) report.Problem {
	p := report.Problem{At: f.At, Path: f.Path, Severity: report.Error, Rule: "key", Hint: "a key has one role: 'caisson keys generate' makes another",
		Message: fmt.Sprintf("one key is both %s and %s key: %s is named at %s", other.role, role, other.file.Name, other.file.At)}
	if other.role == role {
		p.Hint, p.Message = "remove one of the two", fmt.Sprintf("the key is listed twice: %s is named at %s", other.file.Name, other.file.At)
	}
	return p
}
