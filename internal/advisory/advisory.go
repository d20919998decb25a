// SPDX-License-Identifier: Apache-2.0

// Package advisory reads the advisories of Debian's security tracker and says which of
// them concern a list of packages, and which a change of the list closes or opens.
//
// The file is data/json of https://security-tracker.debian.org, as an operator fetched it:
// source package, then CVE, then release. The tracker lists source packages, so
// packages are judged by the source that they were built from and its version, in the
// order of deb-version(7). Nothing is fetched and nothing is refused because of it.
package advisory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	version "github.com/knqyf263/go-deb-version"
)

// most is more than the tracker's file has: some 80 MB.
const most = 512 << 20

// Tracker holds what the file says, by source package.
type Tracker struct {
	sources  map[string][]entry
	releases map[string]bool
}

type entry struct {
	id       string // a CVE, or the tracker's own TEMP-…
	releases map[string]verdict
}

// verdict is the tracker's word on one release.
type verdict struct {
	Status  string `json:"status"` // resolved, open or undetermined
	Fixed   string `json:"fixed_version"`
	Urgency string `json:"urgency"`
}

// Status words of the tracker besides resolved.
const (
	open         = "open"
	undetermined = "undetermined"
)

// Open reads the tracker's file at name.
func Open(name string) (*Tracker, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read advisories: %w", err)
	}
	defer f.Close() // only read
	t, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read advisories %s: %w", name, err)
	}
	return t, nil
}

// Read reads the tracker's JSON, one source package at a time, up to a limit that is
// counted meanwhile. Keys that it does not know are left out, as the tracker may add some.
func Read(r io.Reader) (*Tracker, error) { return read(r, most) }

func read(r io.Reader, limit int64) (*Tracker, error) {
	capped := &io.LimitedReader{R: r, N: limit + 1}
	d := json.NewDecoder(capped)
	t := &Tracker{sources: map[string][]entry{}, releases: map[string]bool{}}
	err := t.decode(d)
	switch {
	case capped.N <= 0:
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case len(t.releases) == 0:
		return nil, errors.New("it has no entry in the form of the tracker's data/json")
	}
	return t, nil
}

func (t *Tracker) decode(d *json.Decoder) error {
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return errors.Join(err, fmt.Errorf("it begins with %v, not with an object", token))
	}
	for d.More() {
		source, err := d.Token()
		if err != nil {
			return err
		}
		var all map[string]struct {
			Releases map[string]verdict `json:"releases"`
		}
		if err := d.Decode(&all); err != nil {
			return fmt.Errorf("source package %.100q: %w", source, err)
		}
		name := source.(string) // keys of an object are texts
		for id, one := range all {
			for release, v := range one.Releases {
				if err := v.check(); err != nil {
					return fmt.Errorf("%.100q, %.100q, %.100q: %w", name, id, release, err)
				}
				t.releases[release] = true
			}
			t.sources[name] = append(t.sources[name], entry{id, one.Releases})
		}
	}
	_, err := d.Token()
	if err == nil {
		if _, after := d.Token(); after != io.EOF {
			err = errors.New("there is more after its object")
		}
	}
	return err
}

func (v verdict) check() error {
	switch v.Status {
	case open, undetermined:
		return nil
	case "resolved":
		_, err := version.NewVersion(v.Fixed)
		if err != nil {
			err = fmt.Errorf("fixed_version %.100q: %w", v.Fixed, err)
		}
		return err
	}
	return fmt.Errorf("status %.100q is not resolved, open or undetermined", v.Status)
}

// Knows reports whether the file has a release, as "bookworm".
func (t *Tracker) Knows(release string) bool { return t.releases[release] }

// affects reports whether a version of the source has the fault. Of what is undetermined
// nobody says so, and "0" is not affected in any version.
func (v verdict) affects(source string) bool {
	if v.Status != "resolved" {
		return v.Status == open
	}
	has, err := version.NewVersion(source)
	if err != nil {
		return v.Fixed != "0" // a version that nobody can compare may be too old
	}
	fixed, _ := version.NewVersion(v.Fixed) // checked when it was read
	return has.LessThan(fixed)
}

// Package is one binary package.
type Package struct {
	Name, Version string
	Source        string // the source package that it is built from; "" where that is not known
	SourceVersion string // "" where it is the package's own
}

// origin returns the source package that the tracker lists it under, and its version. Signed
// kernels are built from sources of their own, which the tracker calls linux.
func (p Package) origin() (source, of string) {
	source, of = cmp.Or(p.Source, p.Name), cmp.Or(p.SourceVersion, withoutRebuild(p.Version))
	if p.Source == "" && strings.HasPrefix(p.Name, "linux-image-") {
		source = "linux"
	}
	if strings.HasPrefix(source, "linux-signed-") {
		return "linux", withoutRebuild(p.Version)
	}
	return source, of
}

// withoutRebuild takes +b1 off a version, which a rebuild of the same source adds.
func withoutRebuild(v string) string {
	if i := strings.LastIndex(v, "+b"); i >= 0 && i+2 < len(v) && strings.Trim(v[i+2:], "0123456789") == "" {
		return v[:i]
	}
	return v
}
