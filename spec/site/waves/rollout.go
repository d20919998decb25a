// SPDX-License-Identifier: Apache-2.0

// Package waves reads how a change reaches a site's nodes: the documents Rollout, which divide
// nodes into waves, and the checks of health by which each node tells whether the change was good.
//
// It knows neither which nodes move nor whether one did well: package rollout asks it for waves,
// and decides. Nodes are named as package maintenance names them.
package waves

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// RolloutDoc is a Rollout as it is written.
type RolloutDoc struct {
	maintenance.HeadDoc
	Kind shape.Text     `site:"kind,required" enum:"Rollout"`
	Spec rolloutSpecDoc `site:"spec,required"`
}

type rolloutSpecDoc struct {
	Nodes    []shape.Text   `site:"nodes" doc:"names of NodeSets; every node when absent"`
	Waves    []wave         `site:"waves" doc:"one after the other; nodes in none are a last one. One of waves and strategy is there"`
	Strategy *strategy      `site:"strategy" doc:"how many nodes may be unavailable at once, instead of waves whose nodes move together"`
	Soak     shape.Pause    `site:"soak" doc:"how long the nodes of a wave must be healthy; 10m when absent"`
	Deadline shape.Duration `site:"deadline" doc:"time after which a node has failed that does not report what it was given; 1h when absent"`
	Silence  shape.Duration `site:"silence" doc:"time without a report that leaves a node out, at least 3 intervals and 1m; else 30m"`
	Halt     haltDoc        `site:"halt" doc:"number of failures in a wave that halt the rollout; 1 when absent"`
	Undo     shape.Text     `site:"undo" enum:"wave,all,none" doc:"what goes back when the rollout halts; wave when absent"`
	Grade    shape.Text     `site:"grade" enum:"attested,pinned,any" doc:"pinned: only reports by keys on disks; attested: by TPMs; else any"`

	Rehearsed shape.Text      `site:"rehearsed" enum:"layer,settings" doc:"waves wait for a signed rehearsal of it, see docs/rollout.md"`
	Analysis  []spec.Analysis `site:"analysis" doc:"measured by a Prometheus on moved nodes: worse halts, unknown waits"`
	V         *tree.Value
}

// wave is a wave of a rollout, or a term of a strategy's order.
type wave struct {
	Hosts   []string   `site:"hosts" doc:"names of nodes, or patterns with * and ?"`
	Set     shape.Text `site:"set" doc:"name of a NodeSet"`
	Percent int        `site:"percent" doc:"percentage of all nodes of the rollout that change, in order of names, rounded up"`
	Count   int        `site:"count" doc:"number of nodes, in order of names"`
	Each    string     `site:"each" doc:"label: one wave for each of its values, sorted"`
	Rest    bool       `site:"rest" doc:"true for all nodes that are left, however many; with hosts, set, percent or count, for all of those"`
	At      report.Pos
	V       *tree.Value

	set *maintenance.Set
}

type haltDoc struct {
	Count   shape.Number `site:"count"`
	Percent shape.Number `site:"percent" doc:"percentage of the wave"`
}

// Rollout is how a change reaches nodes in waves.
type Rollout struct {
	Name string
	Rule spec.RolloutRule

	at       report.Pos
	sets     maintenance.Sets
	waves    []wave
	strategy *strategy // nil: the nodes of a wave move together
}

const (
	defaultSoak     = 10 * 60
	defaultDeadline = 60 * 60
	defaultSilence  = 30 * 60
)

// Check makes rollouts of documents, and reports what is wrong with them.
func Check(c *shape.Checker, docs []RolloutDoc, m maintenance.Maintenance) (out []Rollout) {
	maintenance.CheckEach(c, docs, func(d RolloutDoc) { out = append(out, d.check(c, m)) })
	return out
}

func (d RolloutDoc) check(c *shape.Checker, m maintenance.Maintenance) Rollout {
	s := d.Spec
	r := Rollout{Name: d.Metadata.Name.S, at: d.Metadata.Name.At, Rule: spec.RolloutRule{
		Soak: defaultSoak, Deadline: defaultDeadline, Silence: defaultSilence,
		Count: int(s.Halt.Count.N), Percent: int(s.Halt.Percent.N), Undo: cmp.Or(s.Undo.S, spec.UndoWave), Grade: grade(s.Grade.S),
		Rehearsed: s.Rehearsed.S,
	}}
	for _, t := range []struct {
		doc shape.Duration
		to  *int64
	}{{s.Soak.Duration, &r.Rule.Soak}, {s.Deadline, &r.Rule.Deadline}, {s.Silence, &r.Rule.Silence}} {
		if t.doc.Set() {
			*t.to = int64(t.doc.D / time.Second)
		}
	}
	c.In("halt", func() {
		if n := s.Halt.Count; n.Set() && n.N < 1 {
			c.Errorf(n.At, "range", "", "a rollout halts at one failure or more")
		}
		if n := s.Halt.Percent; n.Set() && (n.N < 1 || n.N > 100) {
			c.Errorf(n.At, "range", "", "a percentage is 1 to 100")
		}
	})
	c.In("nodes", func() { r.sets = m.PickSets(c, s.Nodes) })
	switch {
	case s.Waves != nil && s.Strategy != nil:
		c.Errorf(s.Strategy.At, "strategy", "write the waves as its order", "a rollout has one of waves and strategy")
	case s.Strategy != nil:
		r.strategy, r.waves = s.Strategy, s.Strategy.Order
		c.In("strategy", func() {
			r.strategy.check(c)
			checkWaves(c, m, "order", r.waves)
		})
	case s.Waves == nil:
		c.Errorf(r.at, "strategy", "as in waves: [{count: 1}, {rest: true}] or strategy: {overall: 1}", "a rollout has one of waves and strategy")
	default:
		r.waves = s.Waves
		checkWaves(c, m, "waves", r.waves)
	}
	r.Rule.Analysis = s.Analysis
	shape.Each(c, "analysis", s.Analysis, func(i int, _ spec.Analysis) {
		checkAnalysis(c, s.V.Get("analysis").List[i], &s.Analysis[i], r.Rule.Soak, r.strategy)
	})
	return r
}

func checkWaves(c *shape.Checker, m maintenance.Maintenance, field string, waves []wave) {
	shape.Each(c, field, waves, func(i int, _ wave) { waves[i].check(c, m) })
}

// Decode reads a term: a word is the NodeSet of that name.
func (w *wave) Decode(c *shape.Checker, v *tree.Value) {
	if v.Kind == tree.Scalar {
		w.At = v.At
		c.Decode(v, &w.Set)
		return
	}
	c.Decode(v, (*termDoc)(w))
}

// termDoc is a term that is written with its keys.
type termDoc wave

// Schema is that of both.
func (*wave) Schema(g *shape.Generator) any {
	return map[string]any{"anyOf": []any{g.Of(reflect.TypeFor[shape.Text](), false), g.Of(reflect.TypeFor[termDoc](), false)}}
}

func (w *wave) check(c *shape.Checker, m maintenance.Maintenance) {
	n := rules.Given(c.Has(w.V, "hosts"), w.Set.Set(), c.Has(w.V, "percent"), c.Has(w.V, "count"), c.Has(w.V, "each"))
	if n > 1 || n == 0 && !w.Rest {
		c.Errorf(w.At, "wave", "as in {percent: 10}", "a wave has one of hosts, set, percent, count, each and rest")
	} else if w.Rest && c.Has(w.V, "each") {
		c.Errorf(w.At, "wave", "give it a wave of its own, the last one", "rest is not for each")
	}
	w.Hosts = maintenance.Patterns(c, w.V, w.Hosts)
	if w.Set.Set() {
		c.In("set", func() {
			if sets := m.PickSets(c, []shape.Text{w.Set}); len(sets) == 1 {
				w.set = &sets[0]
			}
		})
	}
	if at := c.At(w.V, "percent"); at != (report.Pos{}) && (w.Percent < 1 || w.Percent > 100) {
		c.Errorf(at, "range", "", "a percentage is 1 to 100")
	}
	if at := c.At(w.V, "count"); at != (report.Pos{}) && w.Count < 1 {
		c.Errorf(at, "range", "", "a wave has one node or more")
	}
}

// Wave is a part of a rollout's nodes.
type Wave struct {
	Name  string
	Nodes []string // sorted

	term int // of the rollout's waves that it is; their number for the nodes that are in none
}

// Divide puts each of these nodes that is the rollout's into one wave: the first that takes it, or a
// last one with the rest. A wave that takes none is left out.
func (r Rollout) Divide(nodes []inventory.Node) []Wave {
	left := r.of(nodes)
	slices.SortFunc(left, func(a, b inventory.Node) int { return plain.Natural(a.Name, b.Name) })
	var out []Wave
	var term int
	take := func(name string, has func(inventory.Node) bool) {
		w := Wave{Name: name, term: term}
		left = slices.DeleteFunc(left, func(n inventory.Node) bool {
			if !has(n) {
				return false
			}
			w.Nodes = append(w.Nodes, n.Name)
			return true
		})
		if w.Nodes != nil {
			out = append(out, w)
		}
	}
	first := func(name string, count int) {
		take(name, func(inventory.Node) bool { count--; return count >= 0 })
	}
	all := len(left)
	everyone := func(inventory.Node) bool { return true }
	for i, w := range r.waves {
		term = i
		name := fmt.Sprint(i + 1)
		switch {
		case w.Hosts != nil:
			take(name, func(n inventory.Node) bool { return maintenance.Named(w.Hosts, n) })
		case w.set != nil:
			take(name+"-"+w.set.Name, w.set.Has)
		case w.Percent > 0:
			first(name, (all*w.Percent+99)/100)
		case w.Count > 0:
			first(name, w.Count)
		case w.Each != "":
			values := map[string]bool{}
			for _, n := range left {
				if v, ok := n.Label(w.Each); ok {
					values[v] = true
				}
			}
			for _, v := range plain.Names(maps.Keys(values)) {
				take(name+"-"+v, func(n inventory.Node) bool { got, ok := n.Label(w.Each); return ok && got == v })
			}
		case w.Rest:
			take(name, everyone)
		}
	}
	term = len(r.waves)
	take(fmt.Sprint(len(r.waves)+1), everyone)
	return out
}

// of returns those of these nodes that are the rollout's.
func (r Rollout) of(nodes []inventory.Node) []inventory.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n inventory.Node) bool { return !r.sets.Has(n) })
}

// Definition says all of how the rollout divides nodes, for comparison.
func (r Rollout) Definition() string {
	text := fmt.Sprintf("rollout %q", r.Name)
	for _, s := range r.sets {
		text += " of " + s.Definition()
	}
	if r.strategy != nil {
		s := r.strategy
		text += fmt.Sprintf("; strategy {per:%s each:%d overall:%d percent:%d}", s.Per, s.Each, s.overall, s.percent)
	}
	for _, w := range r.waves {
		text += fmt.Sprintf("; wave hosts %q percent %d count %d each %q", w.Hosts, w.Percent, w.Count, w.Each)
		if w.set != nil {
			text += " " + w.set.Definition()
		}
	}
	return text
}

// grade returns the word of a plan, where any is left out.
func grade(word string) string {
	if word == "any" {
		return ""
	}
	return word
}

// strategy is how many nodes may be unavailable at once.
type strategy struct {
	Each  int    `site:"maxUnavailable" doc:"nodes of each group that may be unavailable at once; with per"`
	Per   string `site:"per" doc:"label whose values are the groups, for example rack"`
	Bound string `site:"overall" doc:"nodes of the rollout that may be unavailable at once, or a percentage of them, rounded down, as in 5%"`
	Order []wave `site:"order" doc:"terms as of waves, or names of NodeSets; each begins when the nodes before it are proved"`
	At    report.Pos
	V     *tree.Value

	overall int // a number, or
	percent int // of the rollout's nodes
}

func (s *strategy) check(c *shape.Checker) {
	const example = "as in {maxUnavailable: 2, per: rack, overall: 5%}"
	each, at := c.Has(s.V, "maxUnavailable"), c.At(s.V, "overall")
	switch {
	case each != c.Has(s.V, "per"):
		c.Errorf(s.At, "strategy", example, "maxUnavailable and per come together; overall alone bounds all nodes")
	case !each && at == (report.Pos{}):
		c.Errorf(s.At, "strategy", example, "a strategy has maxUnavailable with per, or overall, or both")
	case each && s.Each < 1:
		c.Errorf(c.At(s.V, "maxUnavailable"), "range", "", "a budget of %d nodes never lets one move", s.Each)
	}
	if at == (report.Pos{}) {
		return
	}
	text, percent := strings.CutSuffix(s.Bound, "%")
	n, err := strconv.Atoi(text)
	c.In("overall", func() {
		switch {
		case err != nil:
			c.Errorf(at, "strategy", "as in 20 or 5%", "%q is neither a number of nodes nor a percentage", s.Bound)
		case percent && (n < 1 || n > 100):
			c.Errorf(at, "range", "", "a percentage is 1 to 100")
		case n < 1:
			c.Errorf(at, "range", "", "a budget of %d nodes never lets one move", n)
		case percent:
			s.percent = n
		default:
			s.overall = n
		}
	})
}

// Budget returns how many of these nodes that are the rollout's may be unavailable at once; nil
// where those of a wave move together.
func (r Rollout) Budget(nodes []inventory.Node) *spec.RolloutBudget {
	if r.strategy == nil {
		return nil
	}
	rule := r.strategy
	b := &spec.RolloutBudget{Per: rule.Per, Each: rule.Each, Overall: rule.overall, Nodes: map[string]string{}}
	for _, n := range r.of(nodes) {
		b.Nodes[n.Name], _ = n.Label(rule.Per) // asked by checkBudget
	}
	if rule.percent > 0 {
		b.Overall = len(b.Nodes) * rule.percent / 100
	}
	return b
}

// checkBudget refuses a budget that leaves a node out, or never lets one move.
func (r Rollout) checkBudget(c *shape.Checker, mine []inventory.Node) {
	rule := r.strategy
	for _, n := range mine {
		if _, has := n.Label(rule.Per); rule.Per != "" && !has {
			c.Errorf(rule.At, "strategy", inventory.LabelHint(rule.Per, "", mine),
				"the node %s has no label %q, whose values are the groups", n.Name, rule.Per)
			return
		}
	}
	c.Refuse(rule.percent > 0 && len(mine)*rule.percent < 100, rule.At, "strategy", "as in overall: 1",
		"%d%% of %d nodes is not one node: none would ever move", rule.percent, len(mine))
}

// checkAnalysis checks how a rollout is compared, whose nodes soak for so many seconds, and fills in
// what v leaves out.
func checkAnalysis(c *shape.Checker, v *tree.Value, a *spec.Analysis, soak int64, of *strategy) {
	a.Label, a.Of = cmp.Or(a.Label, "instance"), cmp.Or(a.Of, spec.OfWave)
	if !c.Has(v, "for") {
		a.For = soak
	}
	worse := c.At(v, "worse")
	bound, err := rules.Worse(a.Worse)
	switch {
	case err != nil:
		c.Errorf(worse, "analysis", "", "%v", err)
	case bound.Times && a.Against == "":
		c.Errorf(worse, "analysis", "against: rest", "%q compares with other nodes, and against says with none", a.Worse)
	case !bound.Times && a.Against != "":
		c.Errorf(worse, "analysis", `as in "> 1.2 ×"`, "against compares with other nodes, and %q is a value", a.Worse)
	}
	c.Refuse(a.Of == spec.OfGroup && (of == nil || of.Per == ""), c.At(v, "of"), "analysis", "as in strategy: {maxUnavailable: 2, per: rack}",
		"the rollout has no groups")
	if a.For < 1 {
		c.Errorf(c.At(v), "analysis", "write a soak", "a rollout that does not soak has nothing to look at")
	} else if a.For > soak {
		c.Errorf(c.At(v, "for"), "range", "", "it looks at the time for which nodes soak, which is %s", time.Duration(soak)*time.Second)
	}
	c.Refuse(a.AtLeast < 1 && c.Has(v, "atLeast"), c.At(v, "atLeast"), "range", "", "an analysis needs one node or more")
	a.AtLeast = max(a.AtLeast, 1)
}

// fewNodes may be in one wave of any fleet, whatever their share of it.
const fewNodes = 16

// CheckNodes refuses a wave that names what no node of the rollout has, and one that is large and
// does not say so: where a word is mistyped, it is the next wave that gets its nodes, and a number
// is mistyped as easily.
func (r Rollout) CheckNodes(c *shape.Checker, nodes []inventory.Node) {
	mine, largest := r.of(nodes), 0
	if len(mine) == 0 {
		return // a part of a site
	}
	path := []string{"waves"}
	if r.strategy != nil {
		path = []string{"strategy", "order"}
		c.In("strategy", func() { r.checkBudget(c, mine) })
	}
	for i, w := range r.waves {
		c.Within(append(path, shape.Nth(i)), func() {
			if what, hint := w.nobody(mine); what != "" {
				c.Errorf(w.At, "nobody", hint, "no node of the rollout %s", what)
			}
		})
		if w.Each != "" {
			values := map[string]int{}
			for _, n := range mine {
				if v, ok := n.Label(w.Each); ok {
					values[v]++
					largest = max(largest, values[v])
				}
			}
		}
	}
	if r.strategy != nil {
		return // its budget bounds how many move at once
	}
	for _, w := range r.Divide(nodes) {
		size, at, what := len(w.Nodes), r.at, "the nodes that are in no wave"
		if w.term < len(r.waves) {
			term := r.waves[w.term]
			if term.Rest || term.Each != "" {
				continue
			}
			at, what = term.At, "the nodes of wave "+w.Name
		}
		if size > max(fewNodes, largest) && 4*size > len(nodes) {
			c.In("waves", func() {
				c.Errorf(at, "large-wave", "write rest: true where all of them are meant at once; smaller numbers and each make smaller waves",
					"%s are %d of %d at once", what, size, len(nodes))
			})
		}
	}
}

// nobody returns what a wave names that none of the nodes has, and a hint.
func (w wave) nobody(nodes []inventory.Node) (what, hint string) {
	for _, pattern := range w.Hosts {
		if !slices.ContainsFunc(nodes, func(n inventory.Node) bool { return maintenance.Named([]string{pattern}, n) }) {
			return "has the name " + pattern, inventory.DidYouMean(pattern, nodes)
		}
	}
	if w.set != nil && !slices.ContainsFunc(nodes, w.set.Has) {
		return "belongs to the NodeSet " + w.set.Name, w.set.WhyNobody(nodes)
	}
	labelled := func(n inventory.Node) bool { _, ok := n.Label(w.Each); return ok }
	if w.Each != "" && !slices.ContainsFunc(nodes, labelled) {
		return "has the label " + w.Each, inventory.LabelHint(w.Each, "", nodes)
	}
	return "", ""
}
