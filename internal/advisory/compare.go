// SPDX-License-Identifier: Apache-2.0

package advisory

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
)

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
