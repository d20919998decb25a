// SPDX-License-Identifier: Apache-2.0

package module

import (
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type unitDoc struct {
	Content shape.Block            `site:"content" doc:"text of its file in /etc/systemd/system; the layer's when absent"`
	File    shape.Text             `site:"file" doc:"file beside the site that holds the text, instead of content"`
	DropIns shape.Map[shape.Block] `site:"dropIns" doc:"text of drop-ins by name, without .conf"`
	Limits  shape.Map[shape.Text]  `site:"limits" doc:"limits of what it runs, named as in limits.conf(5)"`
	State   shape.Text             `site:"state" enum:"enabled,disabled,masked" doc:"enabled, disabled or masked; unchanged when absent"`
	Run     shape.Text             `site:"run" enum:"started,stopped" doc:"started or stopped; unchanged when absent"`
	Restart shape.Flag             `site:"restart" doc:"restart the unit when its files have changed"`
	At      report.Pos
}

var unitsModule = Module{Name: "units", Doc: reflect.TypeFor[shape.Raw[shape.Map[unitDoc]]](),
	About:  "units of systemd; the entry system.conf sets the limits of all services without limits of their own",
	Inline: inline(map[string]string{"file": "content"}), Compile: (*Checker).units,
	Flag: func(path []string) bool { return len(path) == 2 && path[1] == "restart" },
	// A unit may hold a secret: of texts only their identity is shown.
	Lines: func(i *spec.Items) (out []Line) {
		for _, u := range i.Units {
			words := slices.DeleteFunc([]string{u.State, u.Run}, func(w string) bool { return w == "" })
			if u.Restart {
				words = append(words, "restarted on change")
			}
			if u.Content != "" {
				words = append(words, "file "+identity(u.Content))
			}
			words = append(words, plain.Each(u.DropIns, func(d spec.DropIn) string { return d.Name + " " + identity(d.Content) })...)
			out = append(out, Line{u.Name, strings.Join(words, ", ")})
		}
		return out
	},
}

func (c *Checker) units(v *tree.Value, f *Fragment) {
	shape.Entries(c.Checker, v, func(e shape.Entry[unitDoc]) {
		if e.Val.At == (report.Pos{}) {
			return
		}
		u := spec.Unit{Name: e.Key.S, Content: e.Val.Content.S, State: e.Val.State.S, Run: e.Val.Run.S, Restart: e.Val.Restart.On}
		for _, in := range e.Val.DropIns {
			c.In("dropIns", func() {
				c.Refuse(in.Key.S == rules.LimitsDropIn, in.Key.At, "id", "write limits", "the name is that of the limits")
				c.Valid(in.Key.At, rules.ID(in.Key.S))
				c.secretsIn(in.Val.Text)
				u.DropIns = append(u.DropIns, spec.DropIn{Name: in.Key.S, Content: in.Val.S})
			})
		}
		c.secretsIn(e.Val.Content.Text)
		u.DropIns = append(u.DropIns, c.unitLimits(u.Name, e.Val.Limits)...)
		slices.SortFunc(u.DropIns, func(a, b spec.DropIn) int { return strings.Compare(a.Name, b.Name) })
		c.ValidFields(e.Key.At, map[string]report.Pos{"content": e.Val.Content.At, "state": e.Val.State.At,
			"run": e.Val.Run.At}, rules.UnitSettings(u))
		c.Refuse(u.Content == "" && len(u.DropIns) == 0 && u.State == "" && u.Run == "", e.Val.At, "required",
			"write content, dropIns, limits, state or run", "nothing is asked of the unit")
		if u.Content != "" || u.State == spec.UnitMasked {
			f.Owns[rules.UnitFile(u.Name)] = e.Key.At
		}
		for _, in := range u.DropIns {
			f.Owns[rules.UnitDropIn(u.Name, in.Name)] = e.Key.At
		}
		f.Items.Units = append(f.Items.Units, u)
	})
	slices.SortFunc(f.Items.Units, func(a, b spec.Unit) int { return strings.Compare(a.Name, b.Name) })
}

// unitLimits returns the drop-in that sets the limits of a unit, none without any.
func (c *Checker) unitLimits(unit string, limits shape.Map[shape.Text]) []spec.DropIn {
	var lines []string
	for _, l := range limits {
		c.Within([]string{"limits", l.Key.S}, func() {
			line, err := rules.UnitLimit(unit, l.Key.S, l.Val.S)
			at := l.Val.At
			for _, e := range rules.All(err) {
				if e.Rule == "enum" {
					at = l.Key.At
				}
			}
			c.Valid(at, err)
			lines = append(lines, line)
		})
	}
	if len(lines) == 0 {
		return nil
	}
	section := map[string]string{".service": "Service", ".socket": "Socket", ".mount": "Mount", ".swap": "Swap",
		path.Ext(rules.ManagerConf): "Manager"}[path.Ext(unit)]
	if section == "" {
		c.Errorf(limits[0].Key.At, "limit", "", "a unit such as %s runs nothing that could have limits", unit)
		return nil
	}
	slices.Sort(lines)
	return []spec.DropIn{{Name: rules.LimitsDropIn, Content: "[" + section + "]\n" + strings.Join(lines, "\n") + "\n"}}
}
