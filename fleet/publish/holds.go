// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec"
)

// A hold keeps a node out of a publish: a freeze, a pin, a rollback or a pause. A row has at most one
// pause, and at most one of the others.

// SplitHolds parts a row's holds into those that last at a time and those that are over.
func SplitHolds(holds []spec.Hold, now time.Time) (last, over []spec.Hold) {
	for _, h := range holds {
		if h.Over(now) {
			over = append(over, h)
		} else {
			last = append(last, h)
		}
	}
	return last, over
}

// putHold returns the holds with one more, and those whose place it takes. A rollback takes no
// freeze's place: the node is frozen again when the rollback ends.
func putHold(holds []spec.Hold, h spec.Hold) (all, ended []spec.Hold) {
	for _, was := range holds {
		if (was.Kind == spec.HoldPause) != (h.Kind == spec.HoldPause) || was.Kind == spec.HoldFreeze && h.Kind == spec.HoldRollback {
			all = append(all, was)
		} else {
			ended = append(ended, was)
		}
	}
	all = append(all, h)
	slices.SortFunc(all, func(a, b spec.Hold) int { return strings.Compare(a.Kind, b.Kind) })
	return all, ended
}

// endHolds parts the holds into those that stay and those that end: the pause, or all
// others but a freeze below a rollback.
func endHolds(holds []spec.Hold, pause bool) (stay, ended []spec.Hold) {
	below := holdOf(holds, spec.HoldRollback) != nil
	for _, h := range holds {
		if (h.Kind == spec.HoldPause) == pause && !(below && h.Kind == spec.HoldFreeze) {
			ended = append(ended, h)
		} else {
			stay = append(stay, h)
		}
	}
	return stay, ended
}

// holdOf returns the hold of a kind, nil where there is none.
func holdOf(holds []spec.Hold, kind string) *spec.Hold {
	if i := slices.IndexFunc(holds, func(h spec.Hold) bool { return h.Kind == kind }); i >= 0 {
		return &holds[i]
	}
	return nil
}

// WhyHeld says in a few words why a node is left out of something, as in `held: pin, waits
// for a firmware fix`; "" without a hold.
func WhyHeld(holds []spec.Hold) string {
	if len(holds) == 0 {
		return ""
	}
	return "held: " + holds[0].Kind + ", " + holds[0].Reason
}

// HoldText describes holds for people, as in `pin by eve since 2026-11-01 until
// 2026-11-08: waits for a firmware fix`.
func HoldText(holds []spec.Hold) string {
	var all []string
	for _, h := range holds {
		text := h.Kind
		if h.Author != "" {
			text += " by " + h.Author
		}
		text += " since " + when(h.Since)
		if h.Until != 0 {
			text += " until " + when(h.Until)
		}
		all = append(all, text+": "+h.Reason)
	}
	return strings.Join(all, "; ")
}

func when(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// longestSpan is how far away the end of a hold or of signatures may be.
const longestSpan = 10 * 366 * 24 * time.Hour

// ParseUntil reads the end of a hold: an RFC 3339 time, a date (its first moment,
// UTC), or a span from now, as in 7d or 12h. "" is not an end.
func ParseUntil(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	until, err := parseEnd(text, now)
	switch {
	case err != nil:
		return until, cli.Usage("as in 7d, 12h, 2026-11-30 or 2026-11-30T18:00:00Z", "%q is not a time", text)
	case !until.After(now):
		return until, cli.Usage("", "%q is over already", text)
	case until.Sub(now) > longestSpan:
		return until, cli.Usage("a hold without an end has no --until", "%q is more than ten years away", text)
	}
	return until.UTC().Truncate(time.Second), nil
}

func parseEnd(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	span, err := ParseSpan(text)
	return now.Add(span), err
}

// ParseSpan reads 7d and what time.ParseDuration reads.
func ParseSpan(text string) (time.Duration, error) {
	spelled, unit := text, time.Duration(1)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		spelled, unit = days+"h", 24
	}
	d, err := time.ParseDuration(spelled)
	if err == nil && d.Abs() > longestSpan { // of days it would overflow
		err = fmt.Errorf("%q is more than ten years", text)
	}
	return d * unit, err
}
