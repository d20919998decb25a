// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// describe returns what the indexes say of packages, as apt-cache show prints it.
// Reading all indexes takes apt longer than the rest of resolving one more package,
// so the last answer is kept: the same indexes say the same of the same packages.
func (s *State) describe(ctx context.Context, debs []Deb) (string, error) {
	releases, err := s.Releases()
	if err != nil {
		return "", err
	}
	question, err := json.Marshal([]any{releases, debs})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(question)
	key := hex.EncodeToString(sum[:]) + "\n"
	kept, err := os.ReadFile(s.path("described"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if n := len(key); len(kept) > n && string(kept[:n]) == key {
		return string(kept[n:]), nil
	}
	out, err := s.show(ctx, debs)
	if err != nil {
		return "", err
	}
	return out, durable.WriteFile(s.path("described"), []byte(key+out), 0o644)
}

// show asks what indexes say of packages. That must not depend on a status that was written before.
func (s *State) show(ctx context.Context, debs []Deb) (string, error) {
	if err := os.WriteFile(s.path("status"), nil, 0o644); err != nil {
		return "", err
	}
	names := plain.Each(debs, func(d Deb) string { return d.Name + "=" + d.Version })
	return s.run(ctx, append([]string{"apt-cache", "show", "--"}, names...)...)
}

// SetSources notes of each package the source package that it was built from, as the
// indexes say. One that no index has any more is left as it is.
func (s *State) SetSources(ctx context.Context, debs []Deb) error {
	if len(debs) == 0 {
		return nil
	}
	out, err := s.show(ctx, debs)
	if err != nil {
		return fmt.Errorf("ask for the sources of packages: %w", err)
	}
	said := plain.Map(Stanzas(out), func(st Stanza) (string, Stanza) { return st.Get("SHA256"), st })
	for i, d := range debs {
		if st, ok := said[d.SHA256]; ok {
			debs[i].Source, debs[i].SourceVersion = source(st)
		}
	}
	return nil
}

// source reads the field Source, see deb-control(5): it is absent where the source has the
// package's name and version, and has the version in brackets where that is another.
func source(st Stanza) (name, version string) {
	name, rest, _ := strings.Cut(st.Get("Source"), " ")
	if name == "" {
		return st.Get("Package"), ""
	}
	version = strings.Trim(rest, " ()")
	if version == st.Get("Version") {
		version = ""
	}
	return name, version
}

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
				problems = append(problems, fmt.Errorf("repositories %s and %s: distribution %s of %s has two keys; give one "+
					"entry all components", other.ID, r.ID, dist, r.URL))
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
