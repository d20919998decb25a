// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Check refuses archives that could not stand in a list of sources, naming every
// problem; base is nil where the base is not Debian's. It asks nobody.
func Check(base *spec.Debian, own []spec.Repository) error {
	var problems []error
	if base != nil {
		for _, uri := range []string{base.Mirror, base.Security} {
			if err := rules.SourceURL(uri); uri != "" && err != nil {
				problems = append(problems, fmt.Errorf("layer.base.debian: %w", err))
			}
		}
		problems = append(problems, words("layer.base.debian", append([]string{base.Suite}, base.Components...)))
		if base.Snapshot != "" {
			problems = append(problems, words("layer.base.debian.snapshot", []string{base.Snapshot}))
		}
	}
	for _, r := range own {
		for _, err := range []error{rules.ID(r.ID), rules.SourceURL(r.URL)} {
			if err != nil {
				problems = append(problems, fmt.Errorf("repository %q: %w", r.ID, err))
			}
		}
		if len(r.Distributions) == 0 {
			problems = append(problems, fmt.Errorf("repository %s: no distributions", r.ID))
		}
		for _, list := range [][]string{r.Components, r.Subrepos} {
			problems = append(problems, words("repository "+r.ID, list))
		}
		for _, dist := range r.Distributions {
			if err := rules.Suite(dist); err != nil {
				problems = append(problems, fmt.Errorf("repository %s: %w", r.ID, err))
			}
		}
		if err := rules.Sources(r); err != nil {
			problems = append(problems, fmt.Errorf("repository %s: %w", r.ID, err))
		}
		if r.Key != "" && !strings.Contains(r.Key, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
			problems = append(problems, fmt.Errorf("repository %s: the key is not an armoured OpenPGP public key", r.ID))
		}
	}
	return errors.Join(append(problems, sameKeys(own)...)...)
}

// sameKeys refuses one distribution of one URL with two keys: apt takes one.
func sameKeys(own []spec.Repository) (problems []error) {
	first := map[string]spec.Repository{}
	for _, r := range own {
		for _, dist := range r.Distributions {
			at := strings.TrimRight(r.URL, "/") + " " + dist
			if other, twice := first[at]; twice && strings.TrimSpace(other.Key) != strings.TrimSpace(r.Key) {
				problems = append(problems, fmt.Errorf("repositories %s and %s: distribution %s of %s has two keys; give one entry all components", other.ID, r.ID, dist, r.URL))
			} else if !twice {
				first[at] = r
			}
		}
	}
	return problems
}

// words checks suites or components.
func words(whose string, list []string) error {
	for _, word := range list {
		if err := rules.SourceWord(word); err != nil {
			return fmt.Errorf("%s: %w", whose, err)
		}
	}
	return nil
}
