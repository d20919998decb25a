// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// nodeList is the page that lists nodes. Its address is a query as GET /v1/nodes has it, and
// says beside it which columns there are, the label to count by, and which page of the list it is.
type nodeList struct {
	fleet     *query.Fleet
	reader    string                         // ends a command that asks this service
	publishes func(verb, more string) string // is a command that signs
}

const (
	perPage    = 100 // nodes that a page lists
	maxOffered = 500 // labels that the form offers: some are of one node each
	maxGroups  = 200 // values of a label that are counted on a page
)

// beside are the parameters of the page that are not of the query.
var beside = []string{"column", "group", "page"}

func (p nodeList) page(req *http.Request) (int, any, error) {
	v := req.URL.Query()
	asked := maps.Clone(v)
	for _, name := range beside {
		asked.Del(name)
	}
	q, err := p.fleet.Read(asked, perPage)
	q.Most = min(max(1, q.Most), perPage)
	if at, wrong := strconv.Atoi(cmp.Or(v.Get("page"), "1")); wrong != nil || at < 1 {
		err = cmp.Or(err, fmt.Errorf("page is a number from 1 on, not %.60q", v.Get("page")))
	} else if v.Has("page") {
		q.From = (min(at, 1<<20) - 1) * q.Most
	}
	data := map[string]any{"Query": q, "Group": v.Get("group"), "Kinds": view.Kinds, "Site": p.fleet.Site != nil,
		"Words": view.Choices(p.fleet.Hub.Nodes())}
	var keys []string
	if p.fleet.Site != nil {
		groups := p.fleet.Site.Now().Groups()
		labels := groups.Labels()
		keys = labelKeys(labels)
		data["Sets"], data["Labels"], data["Keys"] = groups.Sets(), labels[:min(len(labels), maxOffered)], keys[:min(len(keys), maxOffered)]
	}
	if by := v.Get("group"); by != "" && !slices.Contains(keys, by) {
		err = cmp.Or(err, noLabel(by, keys))
	}
	link := addresses(v)
	heads, unknown := columns(q.Sort, v["column"], link)
	data["Choices"] = heads
	if err = cmp.Or(err, unknown); err != nil {
		data["Wrong"] = problemOf(query.WrongQuery, err)
		return http.StatusBadRequest, data, nil
	}
	l := p.fleet.List(q)
	data["List"], data["Columns"] = l, slices.DeleteFunc(slices.Clone(heads), func(c column) bool { return !c.Shown })
	data["At"], data["Pages"], data["Hidden"] = l.From/q.Most+1, (l.All+q.Most-1)/q.Most, hidden(v)
	data["Label"] = func(label string) string { return withLabel(v, label) }
	if l.From > 0 {
		data["Before"] = link("page", strconv.Itoa(max(1, l.From/q.Most)))
	}
	if l.From+len(l.Nodes) < l.All {
		data["After"] = link("page", strconv.Itoa(l.From/q.Most+2))
	}
	if by := v.Get("group"); by != "" {
		data["Groups"], data["MoreGroups"] = p.groups(q, by, func(label string) string { return withLabel(v, label) })
	}
	data["Names"], data["Acts"] = p.acts(q, asked, l)
	return http.StatusOK, data, nil
}

// acts returns the names of the nodes of a list, a line each, and what may be done with all of
// them; of a long list only what asks for it again.
func (p nodeList) acts(q query.Asked, v url.Values, l query.List) (names string, acts []act) {
	if v = maps.Clone(v); len(v["differs"]) == 0 { // which status does not know
		v.Del("from")
		v.Del("most")
		v["sort"] = []string{cmp.Or(v.Get("sort"), string(view.Orders[0]))} // without any word it counts nodes, and lists none
		acts = append(acts, act{"the command that lists them", "caisson fleet status --limit " + strconv.Itoa(max(1, l.All)) + flags(v) + p.reader})
	}
	if l.All == 0 || l.All > query.MaxListed {
		return "", acts
	}
	if q.From, q.Most = 0, query.MaxListed; len(l.Nodes) < l.All {
		l = p.fleet.List(q)
	}
	var list, published []string
	for _, n := range l.Nodes {
		if list = append(list, n.Name); n.Published > 0 {
			published = append(published, "--node "+n.Name)
		}
	}
	if len(published) > 0 {
		acts = append(acts, act{"the command that freezes them", p.publishes("freeze", " "+strings.Join(published, " ")+` --reason "…"`)})
	}
	return strings.Join(list, "\n"), acts
}

// flags are the words of a query as 'caisson fleet status' takes them.
func flags(v url.Values) string {
	var words strings.Builder
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, text := range v[name] {
			if text == "" {
				continue
			}
			if name == "q" {
				name = "search"
			}
			words.WriteString(" --" + name + "=" + cli.ShellWord(plain.Line(text)))
		}
	}
	return words.String()
}

// labelGroup counts the nodes of a list that have one value of a label.
type labelGroup struct {
	Value, Link          string // without a link they have no such label
	Nodes, Trouble, Fine int
}

// groups counts the nodes of a list by a label: those in trouble first.
func (p nodeList) groups(q query.Asked, by string, link func(label string) string) (list []labelGroup, more int) {
	found, where := map[string]*labelGroup{}, p.fleet.Site.Now().Groups()
	for _, n := range p.fleet.Hub.Nodes() {
		if !q.Matches(n) {
			continue
		}
		g := labelGroup{}
		labels, _ := where.Where(n.Name)
		for _, label := range labels {
			if value, ok := strings.CutPrefix(label, by+"="); ok {
				g = labelGroup{Value: value, Link: label}
			}
		}
		if found[g.Value] == nil {
			found[g.Value] = &g
		}
		one := found[g.Value]
		one.Nodes++
		c, _ := n.Is()
		if view.KindOf(c).Trouble {
			one.Trouble++
		}
		if c == view.Fine {
			one.Fine++
		}
	}
	for _, g := range found {
		if g.Link != "" {
			g.Link = link(g.Link)
		}
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b labelGroup) int { return cmp.Or(b.Trouble-a.Trouble, plain.Natural(a.Value, b.Value)) })
	return list[:min(len(list), maxGroups)], max(0, len(list)-maxGroups)
}

// labelKeys returns the keys of labels, each as KEY=VALUE.
func labelKeys(labels []string) []string {
	return plain.Names(maps.Keys(plain.Map(labels, func(l string) (string, bool) { key, _, _ := strings.Cut(l, "="); return key, true })))
}

func noLabel(key string, keys []string) error {
	has := "labels are in the site, and --site names that"
	if len(keys) > 0 {
		has = "the site of this service has: " + strings.Join(keys[:min(len(keys), 10)], ", ")
	}
	return cli.WithHint(fmt.Errorf("no node has a label %.60q", key), cmp.Or(plain.DidYouMean(key, slices.Values(keys)), has))
}

// addresses returns how a word of the address is changed; the list begins anew.
func addresses(v url.Values) func(name, value string) string {
	return func(name, value string) string {
		to := maps.Clone(v)
		to.Del("from")
		to.Del("page")
		to.Set(name, value)
		return "/nodes?" + to.Encode()
	}
}

// withLabel is the address of a list that a label narrows.
func withLabel(v url.Values, label string) string {
	to := maps.Clone(v)
	for _, name := range []string{"from", "page", "group"} {
		to.Del(name)
	}
	if labels := slices.DeleteFunc(slices.Clone(to["label"]), func(l string) bool { return l == "" }); !slices.Contains(labels, label) {
		to["label"] = append(labels, label)
	}
	return "/nodes?" + to.Encode()
}

// field is a part of the address that a form carries on.
type field struct{ Name, Value string }

// hidden are the fields of a form that leads to another page of the same list.
func hidden(v url.Values) (list []field) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, value := range v[name] {
			if name != "page" && name != "from" && value != "" {
				list = append(list, field{name, value})
			}
		}
	}
	return list
}

// column is one of the list of nodes.
type column struct {
	Name   string // as an address chooses it
	Title  string
	Sort   view.Order // "" where lists are not sorted by it
	Class  string
	Usual  bool   // it is there where an address chooses none
	Shown  bool   // it is there
	Link   string // to the list in its order
	Sorted string // as aria-sort has it, "" where the list is sorted by another one
}

// allColumns are in the order of the page. That of names is always there.
var allColumns = []column{
	{Name: "name", Title: "Node", Sort: "name", Usual: true},
	{Name: "condition", Title: "Condition", Sort: "condition", Usual: true},
	{Name: "why", Title: "Why", Usual: true},
	{Name: "health", Title: "Health"},
	{Name: "sync", Title: "Sync"},
	{Name: "activity", Title: "Activity"},
	{Name: "drift", Title: "Drift", Class: "number"},
	{Name: "holds", Title: "Held by"},
	{Name: "generation", Title: "Generation", Sort: "generation", Class: "number", Usual: true},
	{Name: "layer", Title: "Layer", Sort: "layer", Usual: true},
	{Name: "agent", Title: "Agent"},
	{Name: "tpm", Title: "TPM"},
	{Name: "reported", Title: "Reported", Sort: "reported", Usual: true},
}

// columns returns all columns, each with the address of the list in its order; that by which it
// is sorted leads to the same from its other end. Names are those that an address chooses.
func columns(now view.Order, names []string, link func(name, value string) string) ([]column, error) {
	list := slices.Clone(allColumns)
	for _, name := range names {
		if !slices.ContainsFunc(list, func(c column) bool { return c.Name == name }) {
			all := plain.Each(list, func(c column) string { return c.Name })
			return list, fmt.Errorf("unknown column %.60q. One of: %s", name, strings.Join(all, ", "))
		}
	}
	for i := range list {
		c := &list[i]
		c.Shown = c.Name == "name" || slices.Contains(names, c.Name) || len(names) == 0 && c.Usual
		if c.Sort == "" {
			continue
		}
		to := c.Sort
		if now.By() == c.Sort {
			if c.Sorted = "descending"; !now.Falls() {
				c.Sorted, to = "ascending", "-"+to
			}
		}
		c.Link = link("sort", string(to))
	}
	return list, nil
}

func (s *Server) getNodes(w http.ResponseWriter, req *http.Request) {
	q, err := s.o.Read(req.URL.Query(), query.MaxListed)
	if err != nil {
		s.answer(w, http.StatusBadRequest, problemOf(query.WrongQuery, err))
		return
	}
	l := s.o.List(q)
	writable(l.Nodes, s.o.Say)
	s.answer(w, http.StatusOK, l)
}

// writable puts in the place of each line that JSON has no form for one that says so: it costs that
// row, and never the list. What is in it was said by one node, and a list is of all.
func writable(lines []view.Line, say func(string, ...any)) {
	if _, err := json.Marshal(lines); err == nil {
		return
	}
	for i, l := range lines {
		if _, err := json.Marshal(l); err != nil {
			say("node %s: its row of a list cannot be written: %v", l.Name, err)
			lines[i] = view.Line{Name: l.Name, Condition: l.Condition, Kind: l.Kind, Why: "what it reported cannot be written: " + err.Error()}
		}
	}
}

// step is one of a node's boot, as the page draws it.
type step struct {
	Name, Result     string
	OK               bool
	Begin, End, Took string
	Bytes            string
	From, Width      float64 // of the chart, in thousandths
}

// leastWidth lets a short step be seen.
const leastWidth = 2

// chart returns the steps of a node's boot beside each other; nil where it tells none.
func chart(r *spec.Report) (list []step) {
	if r == nil {
		return nil
	}
	whole := 0.0
	for _, s := range r.Boot {
		whole = max(whole, s.Start+s.Took)
	}
	for _, s := range r.Boot {
		one := step{Name: s.Name, Result: s.Result, OK: s.Result == spec.StepOK, Begin: lasting(s.Start),
			End: lasting(s.Start + s.Took), Took: lasting(s.Took)}
		if s.Bytes != nil {
			one.Bytes = s.Bytes.String()
		}
		if whole > 0 {
			one.Width = max(leastWidth, 1000*s.Took/whole)
			one.From = min(1000*s.Start/whole, 1000-one.Width)
		}
		list = append(list, one)
	}
	return list
}

// lasting says how long something took, to three digits or so.
func lasting(milliseconds float64) string {
	switch d := time.Duration(milliseconds * float64(time.Millisecond)); {
	case milliseconds < 1000:
		return fmt.Sprintf("%.0f ms", milliseconds)
	case milliseconds < 100_000:
		return fmt.Sprintf("%.1f s", milliseconds/1000)
	default:
		return plain.Duration(d.Round(time.Second))
	}
}
