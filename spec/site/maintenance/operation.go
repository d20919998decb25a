// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// operationDoc is one operation of a NodeMaintenance as it is written.
type operationDoc struct {
	Name       shape.Text            `site:"name,required" doc:"name of the operation, unique in this document"`
	Template   *useDoc               `site:"template" doc:"template that the operation is made of; keys beside it override the template's"`
	With       shape.Map[shape.Text] `site:"with" doc:"parameters of the template"`
	Type       shape.Text            `site:"type" enum:"cron,oneShot,realtime" doc:"cron: run by schedule; oneShot: once; realtime: keep conf"`
	Exec       *commandDoc           `site:"exec" doc:"command of the operation"`
	Check      *commandDoc           `site:"check" doc:"command that exits with 0 when the operation is done already, also after a reboot"`
	Disruptive shape.Flag            `site:"disruptive" doc:"the operation disturbs what runs on the node, so it needs a window"`
	Reboots    shape.Flag            `site:"reboots" doc:"exec reboots the machine; the operation is over when the machine has booted again"`
	Schedule   *calendar.ScheduleDoc `site:"schedule" doc:"when a cron operation runs"`
	Generation shape.Number          `site:"generation" doc:"number of a oneShot operation: raise it to run the operation again"`
	Retry      *retryDoc             `site:"retry" doc:"how a failed run is tried again; never when absent"`
	Conf       confDoc               `site:"conf" doc:"sysctl, sysfs and nics of a realtime operation, as in the site's conf"`
	Outside    shape.Text            `site:"outsideWindow" enum:"enforce,report" doc:"realtime: what becomes of drift there, else report"`
	OnConflict *spec.Budget          `site:"onConflict" doc:"when a realtime operation stops setting what others keep changing"`
	V          *tree.Value
}

// commandDoc has an example.
type commandDoc spec.Command

const maxBackoff = 7 * 24 * time.Hour

type retryDoc struct {
	Max     shape.Number   `site:"max,required" doc:"number of retries, 1 to 100"`
	Backoff shape.Duration `site:"backoff,required" as:"5m" doc:"time before the first retry; doubled for each later one"`
	At      report.Pos
}

// Example shows a line of a shell as a command.
func (*commandDoc) Example(instead *tree.Value) string {
	w := shape.Line(instead)
	if len(w) == 0 {
		return ""
	}
	argv := []string{"/bin/sh", "-c", shape.Quoted(instead.Text)}
	if strings.HasPrefix(w[0], "/") && !strings.ContainsAny(instead.Text, "|&;<>$`\"'*") {
		argv = w
	}
	return "{argv: [" + strings.Join(argv, ", ") + "], timeout: 1h}"
}

// operation is one operation, as far as it is the same on every node.
type operation struct {
	spec.Operation
	schedule calendar.Schedule // of cron
}

// disturbs reports whether it takes a window and a turn.
func (d operationDoc) disturbs() bool { return d.Disruptive.On || d.Reboots.On }

func (d operationDoc) check(c *shape.Checker, maintenance string, windows []calendar.Window, always bool) operation {
	o := operation{Operation: spec.Operation{Name: maintenance + "/" + d.Name.S, Type: d.Type.S,
		Disruptive: d.Disruptive.On, Generation: d.Generation.N}}
	o.Reboots = d.Reboots.On
	o.Disruptive = d.disturbs()
	if d.Exec != nil {
		c.In("exec", func() { o.Exec = *d.Exec.check(c, d.V.Get("exec")) })
	}
	if d.Check != nil {
		c.In("check", func() { o.Check = d.Check.check(c, d.V.Get("check")) })
	}
	if d.Retry != nil {
		c.In("retry", func() { o.Retries, o.Backoff = d.Retry.check(c) })
	}
	d.checkType(c)
	if d.Type.S == spec.Cron && d.Schedule != nil {
		c.In("schedule", func() { o.schedule = d.Schedule.Check(c, windows) })
		o.Jitter, o.CatchUp = int64(o.schedule.Jitter/time.Second), o.schedule.CatchUp
	}
	c.Refuse(o.Disruptive && len(windows) == 0 && !always, cmp.Or(d.Disruptive.At, d.Reboots.At), "window",
		"name windows, or write windows: [always]", "%s disturbs its node and has no window", d.Name.S)
	o.ID = identity(o.Operation)
	return o
}

// checkType reports what one type has and the other has not.
func (d operationDoc) checkType(c *shape.Checker) {
	switch { // a template may have had both
	case !d.Type.Set():
		c.Errorf(c.At(d.V), "operation", "type: oneShot or type: cron", "an operation has a type")
	case d.Conf.V != nil:
		c.Errorf(d.Conf.V.At, "operation", "type: realtime", "an operation of type %s sets nothing", d.Type.S)
	case d.Outside.Set():
		c.Errorf(d.Outside.At, "operation", "it does not run there", "an operation of type %s does nothing outside its windows", d.Type.S)
	case d.OnConflict != nil:
		c.Errorf(c.At(d.V, "onConflict"), "operation", "retry says what is done when it fails", "an operation of type %s sets nothing", d.Type.S)
	case d.Exec == nil:
		c.Errorf(c.At(d.V), "operation", "as in exec: {argv: [/usr/sbin/fstrim, -A], timeout: 1h}", "an operation says what is done, by exec")
	}
	switch {
	case d.Type.S == spec.Cron && d.Schedule == nil:
		c.Errorf(c.At(d.V), "schedule", "as in schedule: {weekly: [sun], at: \"03:00\"}", "an operation of type cron has a schedule")
	case d.Type.S == spec.OneShot && d.Schedule != nil:
		c.Errorf(d.Schedule.At, "schedule", "windows say when it may run", "an operation of type oneShot has no schedule")
	}
	if g := d.Generation; g.Set() && (d.Type.S == spec.Cron || g.N < 0) {
		c.Errorf(g.At, "range", "a whole number from 0 on, of oneShot only", "this generation means nothing")
	}
}

// check checks the command that v says.
func (d *commandDoc) check(c *shape.Checker, v *tree.Value) *spec.Command {
	if c.Has(v, "argv") {
		c.In("argv", func() {
			at := c.At(v)
			if len(d.Argv) > 0 {
				at = c.Nth(v.Get("argv"), 0)
			}
			if c.Valid(at, rules.Argv(d.Argv)) && strings.ContainsAny(d.Argv[0], " \t") {
				c.Warnf(at, "argv", "one word an entry, as in [/usr/sbin/fstrim, -A]; a shell is [/bin/sh, -c, \"…\"]",
					"the program is %q, with its blanks: no shell takes it apart", d.Argv[0])
			}
		})
	}
	if d.Timeout > rules.MaxCommandTime {
		c.In("timeout", func() { c.Errorf(c.At(v, "timeout"), "range", "", "a command has at most a day") })
	}
	return (*spec.Command)(d)
}

func (d *retryDoc) check(c *shape.Checker) (retries, backoff int64) {
	c.Refuse(d.Max.Set() && (d.Max.N < 1 || d.Max.N > 100), d.Max.At, "range", "", "retries are 1 to 100")
	c.Refuse(d.Backoff.D > maxBackoff, d.Backoff.At, "range", "", "the first pause is at most a week")
	return d.Max.N, int64(d.Backoff.D / time.Second)
}

// identity is the digest by which a node knows what it has done: of what it is and
// does, not of when and where.
func identity(o spec.Operation) string {
	data, err := spec.Encode(struct {
		Name       string      `json:"name"`
		Type       string      `json:"type"`
		Generation int64       `json:"generation"`
		Action     spec.Action `json:"action"`
	}{o.Name, o.Type, o.Generation, o.Action})
	if err != nil {
		panic(err) // texts and numbers have an encoding
	}
	return digest.Of(data)
}

// SwapDoc is when some nodes start over by themselves into what waits for that, as it
// is written.
type SwapDoc struct {
	Nodes   []shape.Text `site:"nodes" doc:"names of NodeSets; every node when absent. The last entry that is for a node counts alone"`
	Windows []shape.Text `site:"windows,required" doc:"names of MaintenanceWindows, or always"`
	turnDoc
	At report.Pos
}

// Swap is one entry of the site's swap.
type Swap struct {
	Written *tree.Value
	sets    Sets
	windows []calendar.Window
	turn    turn
}

// AddSwaps checks the site's swap. Written is the list that docs were decoded from.
func (m *Maintenance) AddSwaps(c *shape.Checker, docs []SwapDoc, written *tree.Value) {
	for i, d := range docs {
		c.In(shape.Nth(i), func() {
			s := Swap{Written: written.List[i]}
			c.In("nodes", func() { s.sets = m.PickSets(c, d.Nodes) })
			var open bool
			s.windows, open = m.pickWindows(c, d.Windows)
			c.Refuse(d.Windows != nil && len(d.Windows) == 0 && !open, d.At, "window", "name windows, or write windows: [always]",
				"a swap disturbs its node and has no window")
			s.turn = d.turnDoc.check(c, s.windows)
			m.swaps = append(m.swaps, s)
		})
	}
	for i, s := range m.swaps {
		if all := slices.IndexFunc(m.swaps[i+1:], func(later Swap) bool { return later.sets == nil }); all >= 0 {
			c.In(shape.Nth(i), func() {
				c.Warnf(s.Written.At, "dead-override", "put the entry for every node first",
					"the entry has no effect: that at %s is for every node", m.swaps[i+1+all].Written.At)
			})
		}
	}
}

// Swap returns the entry that counts for a node, nil where none does.
func (m Maintenance) Swap(n inventory.Node) *Swap {
	for i := range slices.Backward(m.swaps) {
		if m.swaps[i].sets.Has(n) {
			return &m.swaps[i]
		}
	}
	return nil
}

// Spec returns what a node is sent; nil of no entry.
func (s *Swap) Spec(n inventory.Node) *spec.LayerSwap {
	if s == nil {
		return nil
	}
	return &spec.LayerSwap{Order: s.turn.of(n), Windows: plain.Each(s.windows, windowName)}
}

// Realtime is an operation of type realtime: settings that hold, in windows or always.
type Realtime struct {
	Name    string       // maintenance/operation
	Windows []string     // outside of which drift is only reported
	Conf    *tree.Value  // settings by kind, as in the conf of a site
	Budget  *spec.Budget // of each setting
	From    string       // its template
	At      report.Pos
	sets    Sets
}

// confDoc is the settings of an operation. Keys of these kinds can be told from each
// other when a site is published; those of others cannot.
type confDoc struct{ V *tree.Value }

// Decode reads the kinds; what they say is compiled by package site.
func (d *confDoc) Decode(c *shape.Checker, v *tree.Value) {
	c.DecodeFields(v, module.RealtimeFields())
	d.V = v
}

// Schema returns the schema of the kinds.
func (*confDoc) Schema(g *shape.Generator) any { return g.Fields("settings", module.RealtimeFields()) }

// Has reports whether it is about a node.
func (r *Realtime) Has(n inventory.Node) bool { return r.sets.Has(n) }

// Realtime returns all operations of that type.
func (m Maintenance) Realtime() []Realtime {
	return slices.Concat(plain.Each(m.nodes, func(p nodeMaintenance) []Realtime { return p.realtime })...)
}

// checkRealtime checks all but the settings, which are the business of package site.
func (d operationDoc) checkRealtime(c *shape.Checker, m *nodeMaintenance, from string) Realtime {
	r := Realtime{Name: m.name + "/" + d.Name.S, Conf: d.Conf.V, From: from, At: d.Name.At, sets: m.sets}
	for _, f := range []struct {
		name string
		set  bool
	}{{"exec", d.Exec != nil}, {"check", d.Check != nil}, {"schedule", d.Schedule != nil}, {"retry", d.Retry != nil},
		{"generation", d.Generation.Set()}, {"disruptive", d.Disruptive.On}, {"reboots", d.Reboots.On}} {
		c.Refuse(f.set, c.At(d.V, f.name), "operation", "", "an operation of type realtime has no %s", f.name)
	}
	c.Refuse(d.Outside.Set() && len(m.windows) == 0, d.Outside.At, "window", "name windows, or remove it", "%s has no windows", d.Name.S)
	r.Budget = c.Budget(d.V.Get("onConflict"), d.OnConflict)
	if d.Outside.S != "enforce" {
		r.Windows = plain.Each(m.windows, windowName)
	}
	if d.Conf.V == nil || d.Conf.V.Kind != tree.Mapping || len(d.Conf.V.Fields) == 0 {
		c.Errorf(c.At(d.V), "operation", "as in conf: {sysctl: {vm.swappiness: \"1\"}}", "an operation of type realtime says what holds, by conf")
		r.Conf = nil
	}
	return r
}
