// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/caisson-os/caisson/spec"
)

// Names and versions as Debian's policy has them. Nothing else reaches apt's
// command line, where a pattern or an option would mean something.
var (
	name    = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?$`)
	version = regexp.MustCompile(`^[0-9A-Za-z.+:~-]+$`)
)

// Check refuses requests that contradict themselves, all at once.
func Check(p spec.Packages) error {
	var problems []error
	asked := map[string]string{}
	for _, pkg := range p.Install {
		if !name.MatchString(pkg.Name) {
			problems = append(problems, fmt.Errorf("package %q: not a package name", pkg.Name))
			continue
		}
		if pkg.Version != "" && !version.MatchString(pkg.Version) {
			problems = append(problems, fmt.Errorf("package %s: %q is not a version", pkg.Name, pkg.Version))
		}
		if other, twice := asked[pkg.Name]; twice && other != pkg.Version {
			problems = append(problems, fmt.Errorf("package %s: asked for in two versions, %q and %q", pkg.Name, other, pkg.Version))
		}
		asked[pkg.Name] = pkg.Version
	}
	for _, n := range p.Blacklist {
		if _, wanted := asked[n]; wanted {
			problems = append(problems, fmt.Errorf("package %s: asked for and blacklisted", n))
		}
	}
	for _, list := range [][]string{p.Blacklist, p.Whitelist, p.Hold} {
		for _, n := range list {
			if !name.MatchString(n) {
				problems = append(problems, fmt.Errorf("package %q: not a package name", n))
			}
		}
	}
	return errors.Join(problems...)
}
