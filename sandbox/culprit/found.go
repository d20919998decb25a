// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/sandbox/mixture"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Result holds the findings of a search, as bisect -o json prints them.
type Result struct {
	Node    string   `json:"node"`
	Good    string   `json:"good"`    // the generation before
	Bad     string   `json:"bad"`     // the generation that breaks it
	Skipped []string `json:"skipped"` // generations between the two, which could not be tried
	Parts   []Part   `json:"parts"`   // the smallest change that was found: all of them together
	Why     string   `json:"why"`     // what fails
	Tries   int      `json:"tries"`   // machines that were booted, by earlier runs, too

	Author string `json:"author,omitempty"` // of the generation that breaks it, as its publisher wrote
	Reason string `json:"reason,omitempty"`
	Commit string `json:"commit,omitempty"` // of the site
}

// Part is a part of the change.
type Part struct {
	Name    string          `json:"name"`             // KIND/KEY of a setting, layer, layer/IMAGE, layer/packages/SOURCE, part of the overlay
	Changes []plan.Change   `json:"changes"`          // what is in it
	Origin  *explain.Origin `json:"origin,omitempty"` // where the site has it; absent where it does not
	Commit  string          `json:"commit,omitempty"` // at which the site has it there; absent where it has it now
}

// result says of what was found what it is, and where the site has it.
func (n *Node) result(ctx context.Context, f *Found, tries int) (*Result, error) {
	bad := n.kept[f.Bad]
	r := &Result{Node: n.Name, Good: n.kept[f.Good].String(), Bad: bad.String(), Skipped: []string{}, Parts: []Part{},
		Why: f.Why, Tries: tries,
		Author: bad.Author, Reason: bad.Reason, Commit: bad.Commit}
	for _, i := range f.Skipped {
		r.Skipped = append(r.Skipped, n.kept[i].String())
	}
	a, b, err := n.both(ctx, f.Good, f.Bad)
	if err != nil {
		return nil, err
	}
	for _, name := range f.Parts {
		part, in := Part{Name: name}, name
		i, named := slices.IndexFunc(shares, func(s share) bool { return s.name == name }), n.named(name)
		if named != nil {
			i = slices.IndexFunc(shares, func(s share) bool { return s.name == packagesPart })
		}
		if i >= 0 {
			in = mixture.Layer
		}
		o, err := mixture.Of(a.Overlay, b.Overlay, []string{in})
		if err != nil {
			return nil, err
		}
		if part.Changes, err = history.Overlays(ctx, n.Fleet, a.Overlay, o); err != nil {
			return nil, err
		}
		if i >= 0 {
			part.Changes = slices.DeleteFunc(part.Changes, func(c plan.Change) bool {
				return !slices.Contains(shares[i].items, c.Item) || named != nil && !slices.Contains(named, c.Key)
			})
		}
		keys := append([]string{cmp.Or(written[name], name)}, plain.Each(named, func(p string) string { return "apt/packages/" + p })...)
		if part.Origin = n.origin(n.Site, keys); part.Origin == nil {
			n.formerly(&part, keys, bad.Commit, n.kept[f.Good].Commit)
		}
		r.Parts = append(r.Parts, part)
	}
	return r, nil
}

// origin returns where a site has one of the keys for the node, nil where it does not: the node may have left it.
func (n *Node) origin(s *site.Site, keys []string) *explain.Origin {
	e, err := s.Explain(n.Name, nil)
	if err != nil || !e.Known {
		return nil
	}
	for _, one := range e.Settings() {
		if one.Origin != nil && slices.ContainsFunc(keys, one.Has) {
			return one.Origin
		}
	}
	return nil
}

// formerly notes where the site had one of the keys at the first of some commits that has it.
func (n *Node) formerly(p *Part, keys []string, commits ...string) {
	for _, commit := range commits {
		then := n.past(commit)
		if then.Site == nil {
			continue
		}
		if o := n.origin(then.Site, keys); o != nil {
			at := *o
			at.File = strings.TrimPrefix(at.File, then.Dir+"/")
			p.Origin, p.Commit = &at, commit
			return
		}
	}
}

// written says under which key a site has a part that is no item.
var written = map[string]string{"kernelArgs": "machine/kernel/args", mixture.Network: "machine/network",
	"persist": "machine/persist", "gates": "health"}

// Write prints what was found for people; the last line is the smallest change.
func (r *Result) Write(w io.Writer) {
	if len(r.Skipped) > 0 {
		cli.Printf(w, "generations that could not be tried, and may be it, too: %s\n", plain.Some(r.Skipped, shown))
	}
	says := slices.DeleteFunc([]string{"generation " + r.Bad, r.Author, r.Reason}, func(text string) bool { return text == "" })
	if r.Commit != "" {
		says = append(says, "site "+r.Commit)
	}
	cli.Printf(w, "passes with %s, fails with %s: %s\n", r.Good, r.Bad, plain.Line(r.Why))
	cli.Printf(w, "%s\n", plain.Line(strings.Join(says, ", ")))
	if len(r.Parts) > 1 {
		cli.Printf(w, "%d parts, of which none was found to break it without the others:\n", len(r.Parts))
	}
	for _, p := range r.Parts {
		p.write(w)
	}
	if len(r.Parts) == 0 {
		cli.Printf(w, "the overlays of both are alike in all that is tried\n")
	}
}

func (p Part) write(w io.Writer) {
	where := "the site does not have it now"
	switch {
	case p.Origin != nil && p.Commit != "":
		where = p.Origin.String() + " at commit " + p.Commit[:min(len(p.Commit), 12)] + ", not in the site now"
	case p.Origin != nil:
		where = p.Origin.String()
	case len(p.Changes) == 1 && strings.HasPrefix(p.Name, mixture.Layer+"/"):
		where = "in the layer"
	case p.Name == mixture.Layer, strings.HasPrefix(p.Name, mixture.Layer+"/"):
		where = "what is in it is not tried apart"
	}
	if len(p.Changes) == 1 {
		cli.Printf(w, "%s; %s\n", p.Changes[0], where)
		return
	}
	for i, c := range p.Changes {
		if i == shown {
			cli.Printf(w, "  … and %d more\n", len(p.Changes)-shown)
			break
		}
		cli.Printf(w, "  %s\n", c)
	}
	cli.Printf(w, "%s; %s\n", plain.Line(p.Name), where)
}

// shown is how many names, or changes of one part, are printed.
const shown = 8
