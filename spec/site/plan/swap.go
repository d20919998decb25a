// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// swap returns when a node starts over by itself into changes of a class, nil where it
// does not: a machine that boots for the first time is switched on by somebody.
func swap(class string, policy *spec.LayerSwap, m *spec.Maintenance, now time.Time) *Turn {
	switch {
	case policy == nil || now.IsZero() || spec.Live(class) || class == spec.ClassCold:
		return nil
	case len(policy.Windows) == 0:
		return &Turn{Operation: spec.LayerSwapName, From: now.UTC()}
	}
	t := soonest(m, spec.LayerSwapName, policy.Windows, now, func(from time.Time) (time.Time, bool) { return from, true })
	if t == nil {
		t = &Turn{Operation: spec.LayerSwapName}
	}
	return t
}

// swapTexts are the parts of when a node starts over by itself, for people.
func swapTexts(s *spec.LayerSwap) map[string]string {
	if s == nil {
		return nil
	}
	texts := map[string]string{"windows": "always"}
	if len(s.Windows) > 0 {
		texts["windows"] = strings.Join(s.Windows, " or ")
	}
	var when []string
	for _, c := range s.When {
		switch {
		case c.Command != nil:
			when = append(when, commandText(*c.Command))
		case c.Unit != "":
			when = append(when, c.Unit+" is active")
		case c.File != "":
			when = append(when, c.File+" exists")
		default:
			when = append(when, c.Absent+" does not exist")
		}
	}
	if when != nil {
		texts["when"] = strings.Join(when, " and ")
	}
	if s.Slot != "" {
		texts["slot"] = "of " + s.Slot
	}
	if s.Spread > 0 {
		texts["spread"] = (time.Duration(s.Spread) * time.Second).String()
	}
	if d := s.Drain; d != nil {
		texts["drain.check"], texts["drain.exec"], texts["drain.undo"] = commandText(d.Check), commandText(d.Exec), commandText(d.Undo)
	}
	if s.Soak > 0 {
		texts["soak"] = (time.Duration(s.Soak) * time.Second).String()
	}
	return texts
}

func commandText(c spec.Command) string {
	return fmt.Sprintf("%s (%v)", strings.Join(c.Argv, " "), time.Duration(c.Timeout)*time.Second)
}
