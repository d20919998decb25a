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
	"regexp"
	"slices"
	"strings"

	version "github.com/knqyf263/go-deb-version"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
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
	return t, fault.In(err, "read advisories %s", name)
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

// long is a number that no int holds: version counts such numbers as equal.
var long = regexp.MustCompile(`[0-9]{19}`)

// affects reports whether a version of the source has the fault. Of what is undetermined
// nobody says so, and "0" is not affected in any version.
func (v verdict) affects(source string) bool {
	if v.Status != "resolved" {
		return v.Status == open
	}
	has, err := version.NewVersion(source)
	if err != nil || long.MatchString(source+" "+v.Fixed) {
		return v.Fixed != "0" && v.Fixed != source // a version that nobody can compare may be too old
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

// Advisory is one fault of a source package.
type Advisory struct {
	ID      string `json:"id"` // a CVE, or the tracker's own TEMP-…
	Source  string `json:"source"`
	From    string `json:"from,omitempty"`  // version of the source before; absent where it was not there
	To      string `json:"to,omitempty"`    // and after; absent where it is there no more
	Fixed   string `json:"fixed,omitempty"` // the first version without the fault; absent where there is none
	Urgency string `json:"urgency"`         // the tracker's word
}

// Change says what going from some packages to others means for advisories.
type Change struct {
	From string `json:"from,omitempty"` // the layer that is left, by digest; absent where a lock changes
	Why  string `json:"why,omitempty"`  // why the packages could not be compared

	Closed []Advisory `json:"closed"`
	Opened []Advisory `json:"opened"` // by a downgrade, or a package that comes
	Open   []Advisory `json:"open"`   // after the change, those of Opened among them

	ByName []string `json:"byName"` // packages that were judged as sources of their own names: their source is not known
}

// Compare compares packages by what the tracker says of a release.
func (t *Tracker) Compare(release string, from, to []Package) *Change {
	before, after := t.concern(release, from), t.concern(release, to)
	was, is := versions(from), versions(to)
	c := &Change{Closed: []Advisory{}, Opened: []Advisory{}, Open: []Advisory{}, ByName: []string{}}
	for key, a := range before {
		if _, still := after[key]; !still {
			a.From, a.To = was[a.Source], is[a.Source]
			c.Closed = append(c.Closed, a)
		}
	}
	for key, a := range after {
		a.From, a.To = was[a.Source], is[a.Source]
		c.Open = append(c.Open, a)
		if _, already := before[key]; !already {
			c.Opened = append(c.Opened, a)
		}
	}
	for _, list := range [][]Advisory{c.Closed, c.Opened, c.Open} {
		slices.SortFunc(list, order)
	}
	for _, p := range slices.Concat(from, to) {
		if p.Source == "" && !slices.Contains(c.ByName, p.Name) {
			c.ByName = append(c.ByName, p.Name)
		}
	}
	slices.Sort(c.ByName)
	return c
}

// concern returns the advisories that concern packages, by source and id.
func (t *Tracker) concern(release string, packages []Package) map[[2]string]Advisory {
	found := map[[2]string]Advisory{}
	for _, p := range packages {
		source, of := p.origin()
		for _, e := range t.sources[source] {
			if v, ok := e.releases[release]; ok && v.affects(of) {
				found[[2]string{source, e.id}] = Advisory{ID: e.id, Source: source, Fixed: v.Fixed, Urgency: v.Urgency}
			}
		}
	}
	return found
}

// versions returns the version of each source that packages are built from.
func versions(packages []Package) map[string]string {
	return plain.Map(packages, Package.origin)
}

// order has the worst first; what the tracker calls otherwise comes last.
func order(a, b Advisory) int {
	rank := func(a Advisory) uint {
		return uint(slices.Index([]string{"high", "medium", "low", "not yet assigned"}, a.Urgency))
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Source, b.Source), plain.Natural(a.ID, b.ID))
}

// shown is how many advisories of one source are printed.
const shown = 8

// Write prints the change for people: a line for each source of which advisories are
// closed or opened, and how many are open after it.
func (c *Change) Write(w io.Writer) {
	if c.Why != "" {
		fmt.Fprintf(w, "advisories: not known: %s\n", c.Why)
		return
	}
	if len(c.Closed)+len(c.Opened) == 0 {
		fmt.Fprintln(w, "advisories: nothing security relevant")
	}
	list(w, "closes", c.Closed)
	list(w, "opens", c.Opened)
	if len(c.Open) > 0 {
		fmt.Fprintf(w, "advisories: %d open afterwards, of which %d high\n", len(c.Open), high(c.Open))
	}
	if len(c.ByName) > 0 {
		fmt.Fprintf(w, "advisories: judged by their own names, as their sources are not known: %s\n", plain.Some(c.ByName, shown))
	}
}

func high(all []Advisory) (n int) {
	for _, a := range all {
		if a.Urgency == "high" {
			n++
		}
	}
	return n
}

func list(w io.Writer, verb string, all []Advisory) {
	of := map[string][]string{}
	for _, a := range all {
		of[a.Source] = append(of[a.Source], a.ID+" ("+cmp.Or(a.Urgency, "no urgency")+")")
	}
	for _, a := range all { // the first of each source has its worst
		if ids := of[a.Source]; ids != nil {
			fmt.Fprintf(w, "advisories: %s\n", plain.Line(fmt.Sprintf("%s %s → %s %s %s", a.Source, cmp.Or(a.From, "none"),
				cmp.Or(a.To, "none"), verb, plain.Some(ids, shown))))
			delete(of, a.Source)
		}
	}
}
