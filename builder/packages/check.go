// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Check refuses requests that contradict themselves, all at once.
func Check(p spec.Packages) error {
	var problems []error
	asked := map[string]string{}
	for _, pkg := range p.Install {
		if err := rules.Package(pkg.Name); err != nil {
			problems = append(problems, err)
			continue
		}
		if err := rules.Version(pkg.Version); pkg.Version != "" && err != nil {
			problems = append(problems, fmt.Errorf("package %s: %w", pkg.Name, err))
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
			if err := rules.Package(n); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}
