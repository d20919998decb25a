// SPDX-License-Identifier: Apache-2.0

// The fleet's service is asked of earlier generations, too: who gave each out, when and why, and
// what it changed. It reads them where the fleet is published, so a page says what the verbs say,
// and nothing is kept beside the registry. Pages ask again at every report of a node, so answers are kept
// in memory, those about what one publish left until the next. One question is read at a time; who
// asks waits for a while, and finds the answer later where reading takes longer.

package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Bounds of a table.
const (
	maxKept    = 128 // answers, and as many differences
	maxWaiting = 8   // questions that are not answered yet
	longest    = 5 * time.Minute
	lasts      = 10 * time.Minute // keys may change though the same is published
	fails      = 30 * time.Second // an error: of one of the registry the next look may know nothing
)

// ErrReading is returned where the answer is not there yet.
var ErrReading = errors.New("it is being read, and will be here soon")

var errLong = fmt.Errorf("reading it takes longer than %s", plain.Duration(longest))

// Table holds the answers.
type Table struct {
	By plan.Advise // nil for no word on advisories

	ctx   context.Context                   // ends what is read
	fleet func() *published.Fleet           // as it was read last, nil where it was not yet
	names func() (map[string]string, error) // of keys, by id
	turn  chan struct{}                     // has a place for the question that is read
	found map[string]*Difference            // by the digests of both roots, and the node; who has the turn uses it

	mu    sync.Mutex
	root  string // manifest of what was published then
	since time.Time
	kept  map[string]*answer // by question, of that root
}

// answer is there once done is closed.
type answer struct {
	done  chan struct{}
	value any
	err   error
	at    time.Time
}

// failed reports whether an answer is an error that was kept long enough. What is wrong with the
// question or with what is published stays so, and reading that took too long would do so again.
func (a *answer) failed(now time.Time) bool {
	select {
	case <-a.done:
		return cli.Code(a.err) == cli.ExitError && !errors.Is(a.err, errLong) && now.Sub(a.at) > fails
	default:
		return false
	}
}

// NewPast returns a table that knows nothing. What it reads ends with ctx.
func NewPast(ctx context.Context, fleet func() *published.Fleet, names func() (map[string]string, error)) *Table {
	return &Table{ctx: ctx, fleet: fleet, names: names, turn: make(chan struct{}, 1), found: map[string]*Difference{}}
}

// List returns the generations that are kept, the newest first: of a node those in which it got
// something else, and with a key, too, those in which that setting changed on it.
func (t *Table) List(ctx context.Context, node, key string) ([]Entry, error) {
	return ask(ctx, t, []string{"list", node, key}, func(ctx context.Context, f *published.Fleet) ([]Entry, error) {
		names, err := t.names()
		switch {
		case err != nil:
			return nil, err
		case key != "" && node == "":
			return nil, cli.Usage("name the node, too", "since when a setting holds is asked of one node")
		case key != "":
			return Setting(ctx, f, node, key, names)
		}
		return List(ctx, f, node, names)
	})
}

// Between returns what lies between two generations, on one node where it is named. Where from is
// "" the generation before is meant, and nothing is returned for the oldest; where to is "", the
// newest.
func (t *Table) Between(ctx context.Context, from, to, node string) (*Difference, error) {
	return ask(ctx, t, []string{"between", from, to, node}, func(ctx context.Context, f *published.Fleet) (*Difference, error) {
		a, b, err := pair(ctx, f, from, to)
		if err != nil || a == b && from == "" {
			return nil, err // none is before the oldest
		}
		known, err := ofRoots(ctx, f, a, b)
		if err != nil {
			return nil, err
		}
		known += "\x00" + node
		if d := t.found[known]; d != nil {
			return d, nil
		}
		p, err := Between(ctx, f, a, b, node)
		if err == nil {
			err = Advise(ctx, f, p, t.By)
		}
		if err != nil {
			return nil, err
		}
		if len(t.found) >= maxKept {
			clear(t.found)
		}
		t.found[known] = grouped(a.String(), b.String(), p)
		return t.found[known], nil
	})
}

// Beside returns in what a node differs from another one as both are published now.
func (t *Table) Beside(ctx context.Context, node, other string) (*Difference, error) {
	return ask(ctx, t, []string{"beside", node, other}, func(ctx context.Context, f *published.Fleet) (*Difference, error) {
		p, err := Nodes(ctx, f, nil, other, node)
		if err == nil {
			err = Advise(ctx, f, p, t.By)
		}
		if err != nil {
			return nil, err
		}
		return grouped(other, node, p), nil
	})
}

// pair finds the generations of a difference. Both are the oldest one where none is before it.
func pair(ctx context.Context, f *published.Fleet, from, to string) (a, b published.Generation, err error) {
	list, err := kept(ctx, f)
	if err != nil {
		return a, b, err
	}
	if b = list[0]; to != "" {
		b, err = f.Find(ctx, to)
	}
	if a = b; err != nil {
		return a, b, err
	}
	if from != "" {
		a, err = f.Find(ctx, from)
		return a, b, err
	}
	for _, g := range list {
		if g.Compare(b) < 0 {
			return g, b, nil
		}
	}
	return a, b, nil
}

// ofRoots names what two generations signed, and how much of it the keys that count now mark.
func ofRoots(ctx context.Context, f *published.Fleet, a, b published.Generation) (string, error) {
	both, names, err := compared(ctx, f, a, b)
	if err != nil {
		return "", err
	}
	for _, p := range both {
		root, err := spec.Encode(p.Root)
		if err != nil {
			return "", err
		}
		names = append(names, oci.Digest(root))
	}
	return strings.Join(names, "\x00"), nil
}

// ask returns what is kept of a question, or waits until it is read.
func ask[T any](ctx context.Context, t *Table, question []string,
	read func(context.Context, *published.Fleet) (T, error)) (none T, err error) {
	a, err := t.answer(strings.Join(question, "\x00"), func(ctx context.Context, f *published.Fleet) (any, error) { return read(ctx, f) })
	if err != nil {
		return none, err
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return none, ErrReading
	}
	if a.err != nil {
		return none, a.err
	}
	return a.value.(T), nil
}

// answer returns the one that is kept of a question, or begins to read it.
func (t *Table) answer(question string, read func(context.Context, *published.Fleet) (any, error)) (*answer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.fleet()
	if f == nil {
		return nil, errors.New("what is published could not be read yet")
	}
	waiting := 0
	for _, a := range t.kept {
		select {
		case <-a.done:
		default:
			waiting++
		}
	}
	now := time.Now()
	if t.root != f.Root() || now.Sub(t.since) > lasts || len(t.kept) >= maxKept {
		t.root, t.since, t.kept = f.Root(), now, map[string]*answer{}
	}
	if a := t.kept[question]; a != nil && !a.failed(now) {
		return a, nil
	}
	if waiting >= maxWaiting {
		return nil, ErrReading
	}
	a := &answer{done: make(chan struct{})}
	t.kept[question] = a
	go t.read(a, f, read)
	return a, nil
}

// read answers a question when its turn comes.
func (t *Table) read(a *answer, f *published.Fleet, read func(context.Context, *published.Fleet) (any, error)) {
	defer func() {
		a.at = time.Now()
		close(a.done)
	}()
	ctx, cancel := context.WithTimeout(t.ctx, longest)
	defer cancel()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
		a.value, a.err = read(ctx, f)
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	if errors.Is(a.err, context.DeadlineExceeded) {
		a.err = cli.WithHint(errLong,
			"'caisson history' and 'caisson diff' take the time that it needs")
	}
}

// Difference lists changes, with nodes that changed alike together.
type Difference struct {
	From   string  `json:"from"` // a generation, or a node
	To     string  `json:"to"`
	Nodes  int     `json:"nodes"`          // that changed
	Kinds  []Kind  `json:"kinds"`          // by name
	Groups []Group `json:"groups"`         // the most nodes first
	More   int     `json:"more,omitempty"` // nodes that Groups has no room for
	// what nodes went to, with what it closes; absent where no file of advisories was given
	Layers []plan.LayerPlan `json:"layers,omitempty"`

	Marks []string `json:"marks,omitempty"` // why a generation does not count
}

// Kind says how many changes are of one kind, over all nodes.
type Kind struct {
	Name    string `json:"name"`
	Changes int    `json:"changes"`
}

// Group is nodes that changed alike.
type Group struct {
	Class   string        `json:"class"` // what the changes disturb, see plan.NodePlan
	Why     string        `json:"why,omitempty"`
	Names   []string      `json:"names"` // the first of them
	Nodes   int           `json:"nodes"`
	Changes []plan.Change `json:"changes"`        // the first of them
	More    int           `json:"more,omitempty"` // changes that are not in it
}

// What a difference has of each at most: a page is to be read, and stays in memory.
const (
	maxGroups  = 20
	maxNames   = 30
	maxChanges = 100
	maxValue   = 400 // bytes of a value
)

// grouped returns a plan as a difference.
func grouped(from, to string, p *plan.Plan) *Difference {
	kinds := map[string]int{}
	d := &Difference{From: from, To: to, Kinds: []Kind{}, Groups: []Group{}, Layers: p.Layers[:min(len(p.Layers), maxGroups)],
		Marks: p.Marks}
	groups, _ := p.Groups()
	slices.SortStableFunc(groups, func(a, b *plan.Group) int { return len(b.Names) - len(a.Names) })
	for i, g := range groups {
		d.Nodes += len(g.Names)
		for _, c := range g.Changes {
			kinds[c.Item] += len(g.Names)
		}
		if i >= maxGroups {
			d.More += len(g.Names)
			continue
		}
		some := slices.Clone(g.Changes[:min(len(g.Changes), maxChanges)])
		for i := range some {
			some[i].From, some[i].To = plain.Cut(some[i].From, maxValue), plain.Cut(some[i].To, maxValue)
		}
		d.Groups = append(d.Groups, Group{g.Class, g.Why, slices.Clone(g.Names[:min(len(g.Names), maxNames)]), len(g.Names),
			some, len(g.Changes) - len(some)})
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		d.Kinds = append(d.Kinds, Kind{name, kinds[name]})
	}
	return d
}
