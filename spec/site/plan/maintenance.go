// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// maintenance compares what a node does over time.
func (c *comparison) maintenance(from, to *spec.Maintenance) {
	if from == nil {
		from = &spec.Maintenance{}
	}
	if to == nil {
		to = &spec.Maintenance{}
	}
	compareLists(c, "window", windows(from), windows(to), func(w namedWindow) (string, string) { return w.name, w.text() })
	compareLists(c, "operation", from.Operations, to.Operations, func(o spec.Operation) (string, string) { return o.Name, operationText(o) })
}

type namedWindow struct {
	name string
	spec.Window
}

func windows(m *spec.Maintenance) []namedWindow {
	var out []namedWindow
	for name, w := range m.Windows {
		out = append(out, namedWindow{name, w})
	}
	slices.SortFunc(out, func(a, b namedWindow) int { return cmp.Compare(a.name, b.name) })
	return out
}

func (w namedWindow) text() string {
	if len(w.Intervals) == 0 {
		return "never open"
	}
	last := w.Intervals[len(w.Intervals)-1]
	text := fmt.Sprintf("open %d times, first at %s, until %s", len(w.Intervals), moment(w.Intervals[0].From), moment(last.To))
	if w.StartGuard > 0 {
		text += fmt.Sprintf(", nothing starts in the last %v", time.Duration(w.StartGuard)*time.Second)
	}
	if w.OnClose == "stop" {
		text += ", then what runs is stopped"
	}
	return text
}

func operationText(o spec.Operation) string {
	text := fmt.Sprintf("%s: %s", o.Type, strings.Join(o.Exec.Argv, " "))
	switch {
	case o.Type == spec.Cron && len(o.Runs) == 0:
		text += ", never"
	case o.Type == spec.Cron:
		text += fmt.Sprintf(", %d times, first at %s", len(o.Runs), moment(o.Runs[0]))
	case o.Generation > 0:
		text += fmt.Sprintf(", generation %d", o.Generation)
	}
	if len(o.Windows) > 0 {
		text += ", in " + strings.Join(o.Windows, " or ")
	}
	if o.Order != nil && o.Order.Slot != "" {
		text += ", with a slot of " + o.Order.Slot
	}
	return text
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04Z") }
