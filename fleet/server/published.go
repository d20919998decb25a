// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Past answers what is asked of earlier generations, see [past.Table].
type Past interface {
	List(ctx context.Context, node, key string) ([]history.Entry, error)
	Between(ctx context.Context, from, to, node string) (*history.Difference, error)
	Beside(ctx context.Context, node, other string) (*history.Difference, error)
}

// generations are the pages of what was published, and the same as JSON.
type generations struct {
	past  Past                           // nil where earlier generations are not read
	looks func(verb, more string) string // is a command that reads what is published
}

// generation is a row of the page.
type generation struct {
	history.Entry
	What *history.Difference // since the one before; nil where that is not read yet
}

const (
	generationsPerPage = 40
	summing            = 3 * time.Second // how long a page waits for what it is made of: the next one has more
)

// page is a page of generations, which fill makes.
func (g generations) page(req *http.Request, fill func(context.Context, *http.Request, map[string]any) error) (int, any, error) {
	data := map[string]any{"Query": req.URL.Query(), "On": g.past != nil}
	if g.past == nil {
		return http.StatusOK, data, nil
	}
	ctx, cancel := context.WithTimeout(req.Context(), summing)
	defer cancel()
	err := fill(ctx, req, data)
	if data["Reading"] = errors.Is(err, history.ErrReading); err == nil || data["Reading"] == true {
		return http.StatusOK, data, nil
	}
	data["Wrong"] = problemOf(query.WrongQuery, err)
	return http.StatusBadRequest, data, nil
}

// list is what the page of generations has.
func (g generations) list(ctx context.Context, req *http.Request, data map[string]any) error {
	v := req.URL.Query()
	list, err := g.past.List(ctx, v.Get("node"), v.Get("key"))
	if err != nil {
		return err
	}
	at, _ := strconv.Atoi(v.Get("page")) // without a number it is the first page
	at = min(max(1, at), 1+len(list)/generationsPerPage)
	link := func(at int) string {
		return "/generations?" + url.Values{"page": {strconv.Itoa(at)}, "node": {v.Get("node")}, "key": {v.Get("key")}}.Encode()
	}
	if at > 1 {
		data["Newer"] = link(at - 1)
	}
	if at*generationsPerPage < len(list) {
		data["Older"] = link(at + 1)
	}
	data["All"] = len(list)
	data["Rows"] = g.rows(ctx, list[min(len(list), (at-1)*generationsPerPage):min(len(list), at*generationsPerPage)], v.Get("node"))
	return nil
}

// one is what the page of a difference has.
func (g generations) one(ctx context.Context, req *http.Request, data map[string]any) (err error) {
	data["Between"], data["Command"], err = g.difference(ctx, req)
	return err
}

// rows adds what each generation changed, as far as that is read in time.
func (g generations) rows(ctx context.Context, list []history.Entry, node string) []generation {
	rows := make([]generation, len(list))
	for i, e := range list {
		rows[i].Entry = e
		if e.Refused == "" && ctx.Err() == nil {
			rows[i].What, _ = g.past.Between(ctx, "", e.Generation.String(), node) // its own page says why not
		}
	}
	return rows
}

// difference returns what the address asks for, and the verb that says the same. The range is that of
// the path, as 41..45; 45 is what that changed, and 41.. goes up to what is published now. Between leaves it
// to the words of a form.
func (g generations) difference(ctx context.Context, req *http.Request) (*history.Difference, string, error) {
	v := req.URL.Query()
	node, beside := v.Get("node"), v.Get("beside")
	if beside != "" {
		if node == "" {
			return nil, "", cli.Usage("name both nodes", "a node is compared with another one")
		}
		d, err := g.past.Beside(ctx, node, beside)
		return d, g.looks("diff", " --node "+cli.ShellWord(beside)+" --node "+cli.ShellWord(node)), err
	}
	from, to, isRange := strings.Cut(req.PathValue("range"), "..")
	if !isRange {
		from, to = "", from
	}
	if to == "between" {
		from, to = v.Get("from"), v.Get("to")
	}
	d, err := g.past.Between(ctx, from, to, node)
	if err != nil || d == nil {
		return nil, "", err
	}
	command := g.looks("diff", " "+d.From+" "+d.To)
	if node != "" {
		command += " --node " + cli.ShellWord(node)
	}
	return d, command, nil
}

// answer returns the content of the pages, for the API.
func (g generations) answer(req *http.Request) (any, error) {
	if g.past == nil {
		return nil, errors.New("this service does not read earlier generations")
	}
	ctx, cancel := context.WithTimeout(req.Context(), summing)
	defer cancel()
	if req.PathValue("range") == "" {
		return g.past.List(ctx, req.URL.Query().Get("node"), req.URL.Query().Get("key"))
	}
	d, _, err := g.difference(ctx, req)
	if err == nil && d == nil {
		err = errors.New("no generation before it is kept")
	}
	return d, err
}

// getGenerations answers the API.
func (s *Server) getGenerations(w http.ResponseWriter, req *http.Request) {
	switch doc, err := (generations{s.o.Past, s.looks}).answer(req); {
	case errors.Is(err, history.ErrReading):
		w.Header().Set("Retry-After", "10")
		s.fail(w, http.StatusServiceUnavailable, "reading", "%v", err)
	case err != nil:
		s.answer(w, http.StatusBadRequest, problemOf(query.WrongQuery, err))
	default:
		s.answer(w, http.StatusOK, doc)
	}
}

// Differences says how one layer differs from another, by digest; nil is not at all.
// Layers that nobody released are errors.
type Differences interface {
	Between(ctx context.Context, from, to string) (*release.Difference, error)
}

// Layer is a layer in use.
type Layer struct {
	view.LayerUse
	Difference *release.Difference `json:"difference,omitempty"` // from the layer that most nodes run
	More       int                 `json:"more,omitempty"`       // packages that differ and are not listed
	MoreUsers  int                 `json:"moreAccounts,omitempty"`
	Trouble    string              `json:"trouble,omitempty"` // why the difference is not known
}

// AccountsAlike reports whether two layers have the same accounts and others in them, as a
// key or a password.
func (l Layer) AccountsAlike() bool {
	return len(l.Difference.Accounts) == 0 && slices.ContainsFunc(l.Difference.Images,
		func(i release.ImageChange) bool { return i.Name == spec.ImageAccounts })
}

// Size returns what a node with the one fetches for the other, for people.
func (l Layer) Size() string { return plain.Bytes(l.Difference.Bytes) }

// Layers holds what GET /v1/layers answers.
type Layers struct {
	Base   string  `json:"base,omitempty"` // the layer that most nodes run; the others are compared with it
	Layers []Layer `json:"layers"`
}

const (
	maxCompared = 20               // layers: nodes may report any
	maxPackages = 200              // of one layer; and of accounts
	comparing   = 10 * time.Second // what takes longer is there the next time
)

// layers compares the layers in use.
func (s *Server) layers(ctx context.Context) Layers {
	ctx, cancel := context.WithTimeout(ctx, comparing)
	defer cancel()
	out := Layers{Layers: []Layer{}}
	for i, use := range s.o.Summary().Layers { // the one that most nodes run is the first
		l := Layer{LayerUse: use}
		switch {
		case i == 0 && use.Running > 0:
			out.Base = use.Layer
		case s.o.Layers == nil || out.Base == "":
		case i > maxCompared:
			l.Trouble = "it is compared only where fewer layers are in use"
		default:
			d, err := s.o.Layers.Between(ctx, out.Base, use.Layer)
			if err != nil {
				l.Trouble = err.Error()
			} else if d != nil {
				cut := *d
				l.More = max(0, len(d.Packages)-maxPackages)
				cut.Packages = d.Packages[:min(len(d.Packages), maxPackages)]
				l.MoreUsers = max(0, len(d.Accounts)-maxPackages)
				cut.Accounts = d.Accounts[:min(len(d.Accounts), maxPackages)]
				l.Difference = &cut
			}
		}
		out.Layers = append(out.Layers, l)
	}
	return out
}

// Rollouts holds what GET /v1/rollouts answers.
type Rollouts struct {
	Rollouts []rollout.State `json:"rollouts"` // the newest first
}

// rolloutRow is a rollout on the page: its waves beside what their nodes report now.
type rolloutRow struct {
	rollout.State
	Brief rollout.Brief
	Waves []waveRow
	Named []namedNodes
	Left  int // nodes that Named has no room for
	Acts  []act
}

// waveRow is a wave. What nodes of one that has not begun, or went back, report now says
// nothing of it.
type waveRow struct {
	rollout.WaveState
	Given         bool // its nodes have what the rollout brings
	Fine, Trouble int
}

// namedNodes are nodes that failed or are left out for one reason.
type namedNodes struct {
	What, Why string
	Nodes     []string
	More      int // that are not in Nodes
}

// What the page lists of a rollout at most.
const (
	maxNamed   = 12 // reasons
	maxNodesOf = 30 // nodes of one
)

// named groups the nodes of a rollout by why they failed, then by why they did not go
// back, and then by why they are left out: the most first.
func named(waves []rollout.WaveState) (list []namedNodes, left int) {
	for _, what := range []string{"failed", "did not go back", "left out"} {
		groups := map[string][]string{}
		for _, w := range waves {
			of := map[string]map[string]string{"failed": w.Failed, "did not go back": w.Stayed, "left out": w.LeftOut}[what]
			for _, name := range w.Nodes {
				if why := of[name]; why != "" {
					groups[why] = append(groups[why], name)
				}
			}
		}
		whys := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(groups[b]), len(groups[a])), cmp.Compare(a, b))
		})
		for _, why := range whys {
			nodes := groups[why]
			if len(list) == maxNamed {
				left += len(nodes)
				continue
			}
			n := min(len(nodes), maxNodesOf)
			list = append(list, namedNodes{what, why, nodes[:n], len(nodes) - n})
		}
	}
	return list, left
}

// says describes a verb's effect on a rollout.
var says = map[rollout.Verb]string{
	rollout.Pause:  "Pause it: no wave begins or ends",
	rollout.Resume: "Go on: the first wave that did not end, failed or went back begins again",
	rollout.Abort:  "End it: its nodes keep what they have",
	rollout.Undo:   "End it, and give its nodes what they had before it",
}

// verbsOf returns the verbs that an operator may give a rollout, the likeliest first.
var verbsOf = map[string][]rollout.Verb{
	spec.RolloutRunning: {rollout.Pause, rollout.Undo},
	spec.RolloutPaused:  {rollout.Resume, rollout.Undo, rollout.Abort},
	spec.RolloutHalted:  {rollout.Undo, rollout.Resume, rollout.Abort},
	spec.RolloutDone:    {rollout.Undo},
	spec.RolloutUndone:  {rollout.Undo}, // for nodes that stayed
}

func (s *Server) rolloutsPage(req *http.Request) (int, any, error) {
	names := s.o.Names()
	now, conditions, given := s.o.Hub.Now(), map[string]view.Condition{}, map[string]string{}
	for _, n := range s.o.Hub.Nodes() {
		conditions[n.Name], _ = n.Is()
		if n.Published != nil {
			given[n.Name] = n.Published.Overlay
		}
	}
	var rows []rolloutRow
	for _, r := range s.o.Hub.Rollouts() {
		row := rolloutRow{State: r, Brief: r.Brief(now)}
		if r.Phase == spec.RolloutRunning {
			row.Acts = append(row.Acts, act{"Run it: waves begin and end only while this runs somewhere",
				fmt.Sprintf("caisson rollout run %s %s --to %s %s%s", r.Name, cmp.Or(names.Site, "site.yaml"), s.o.Registry,
					names.Signs, s.asReader(req))})
		}
		for _, verb := range verbsOf[r.Phase] {
			if r.Phase == spec.RolloutUndone && !r.Stayed() {
				continue
			}
			row.Acts = append(row.Acts, act{says[verb], fmt.Sprintf(`caisson rollout %s %s %s %s --reason "…" %s`, verb,
				s.o.Registry, r.Name, names.Verifies, names.Signs)})
		}
		for _, wave := range r.Waves {
			v := waveRow{WaveState: wave, Given: !wave.Begun.IsZero() && wave.Back.IsZero()}
			for _, name := range wave.Nodes {
				switch c := conditions[name]; {
				case wave.LeftOut[name] != "" || given[name] != wave.Gives[name]: // it got something else, from another
				case c == view.Fine:
					v.Fine++
				case view.KindOf(c).Trouble:
					v.Trouble++
				}
			}
			row.Waves = append(row.Waves, v)
		}
		row.Named, row.Left = named(r.Waves)
		rows = append(rows, row)
	}
	return http.StatusOK, map[string]any{"Rollouts": rows}, nil
}
