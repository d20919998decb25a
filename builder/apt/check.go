// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

var repositoryID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// Check refuses archives that could not stand in a list of sources, naming every
// problem; base is nil where the base is not Debian's. It asks nobody.
func Check(base *spec.Debian, own []spec.Repository) error {
	var problems []error
	if base != nil {
		for _, uri := range []string{base.Mirror, base.Security} {
			if uri != "" && !isURL(uri) {
				problems = append(problems, fmt.Errorf("layer.base.debian: %q is not a URL", uri))
			}
		}
		problems = append(problems, words("layer.base.debian", append([]string{base.Suite}, base.Components...)))
	}
	for _, r := range own {
		if !repositoryID.MatchString(r.ID) {
			problems = append(problems, fmt.Errorf("repository %q: the name is not one of a–z, 0–9, - and _", r.ID))
		}
		if !isURL(r.URL) {
			problems = append(problems, fmt.Errorf("repository %s: %q is not a URL", r.ID, r.URL))
		}
		if len(r.Distributions) == 0 {
			problems = append(problems, fmt.Errorf("repository %s: no distributions", r.ID))
		}
		for _, list := range [][]string{r.Distributions, r.Components, r.Subrepos} {
			problems = append(problems, words("repository "+r.ID, list))
		}
		if r.Key != "" && !strings.Contains(r.Key, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
			problems = append(problems, fmt.Errorf("repository %s: the key is not an armoured OpenPGP public key", r.ID))
		}
	}
	return errors.Join(problems...)
}

func isURL(s string) bool { return !strings.ContainsAny(s, " \t\r\n[]") && strings.Contains(s, ":") }

func words(whose string, list []string) error {
	for _, word := range list {
		if strings.ContainsAny(word, " \t\r\n[]") || word == "" {
			return fmt.Errorf("%s: %q is not a distribution or component", whose, word)
		}
	}
	return nil
}
