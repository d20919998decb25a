// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// A hold keeps a node out of a publish: a freeze, a pin, a rollback or a pause. A row has at most one
// pause, and at most one of the others.

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
	below := published.HoldOf(holds, spec.HoldRollback) != nil
	for _, h := range holds {
		if (h.Kind == spec.HoldPause) == pause && !(below && h.Kind == spec.HoldFreeze) {
			ended = append(ended, h)
		} else {
			stay = append(stay, h)
		}
	}
	return stay, ended
}

// ParseUntil reads the end of a hold: an RFC 3339 time, a date (its first moment,
// UTC), or a span from now, as in 7d or 12h. "" is not an end.
func ParseUntil(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		until, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		var span time.Duration
		span, err = plain.ParseSpan(text)
		until = now.Add(span)
	}
	switch {
	case err != nil:
		return until, cli.Usage("as in 7d, 12h, 2026-11-30 or 2026-11-30T18:00:00Z", "%q is not a time", text)
	case !until.After(now):
		return until, cli.Usage("", "%q is over already", text)
	case until.Sub(now) > plain.LongestSpan:
		return until, cli.Usage("a hold without an end has no --until", "%q is more than ten years away", text)
	}
	return until.UTC().Truncate(time.Second), nil
}
