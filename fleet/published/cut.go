// SPDX-License-Identifier: Apache-2.0

package published

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// VerbRollout begins what the index says of a rollout's changes.
const VerbRollout = "rollout "

// IsOfRollout reports whether a change is a rollout's.
func IsOfRollout(c *spec.FleetChange) bool {
	return c != nil && strings.HasPrefix(c.Verb, VerbRollout)
}

// CutChange says what was cut of the generation that an index reserves, and what to do.
func CutChange(x spec.FleetIndex) (what, advice string) {
	if IsOfRollout(x.Doing) {
		return fmt.Sprintf("%s was cut, generation %d", x.Doing.Verb, x.Generation),
			"'caisson rollout run' again goes on with it, and whatever else is published keeps what it moved"
	}
	verb := "publish"
	if c := x.Doing; c != nil && c.Verb != "" && c.Verb != VerbMend {
		verb = c.Verb
	}
	or := ", or 'caisson refresh'"
	if verb == VerbRefresh {
		or = ""
	}
	return fmt.Sprintf("a %s of generation %d was cut", verb, x.Generation),
		fmt.Sprintf("run 'caisson %s' again%s, which gives its nodes back what they had", verb, or)
}

// VerbRefresh signs again what is published.
const VerbRefresh = "refresh"

// VerbMend is the change that puts right what a publish that was cut has left.
const VerbMend = "mend"

// givenChecks is the rule for an overlay that a wave gave a node before it was cut.
var givenChecks = check.List[*Signed]{
	{Name: "given form", OK: overlayParses},
	{Name: "given accepted", OK: overlayIsAccepted},
	{Name: "given generation", OK: generationWasGivenOut},
}

// Given returns what the tag of a node leads to where a publish that was cut gave it that beyond
// its row.
func (f *Fleet) Given(ctx context.Context, node string, was spec.Published) (*Signed, error) {
	l, err := f.lookAt(ctx, node, node, was)
	if err == nil {
		err = givenChecks.Run(l)
	}
	return l, err
}

// generationWasGivenOut: what is newer than the row, and not newer than what is reserved,
// was signed by publishes that were cut since.
func generationWasGivenOut(l *Signed) error {
	got := l.Accepted.Floor
	if got.Epoch != l.index.Epoch || got.Generation <= l.row.Generation || got.Generation > l.index.Generation {
		return refusal.New(refusal.Contradiction, "generation %d is not between %d and %d", got.Generation, l.row.Generation, l.index.Generation)
	}
	return nil
}

// Unfinished says who is publishing, or that a publish was cut; "" where
// the fleet is whole.
func (f *Fleet) Unfinished(ctx context.Context) (string, error) {
	x := f.root()
	if !x.Reserved {
		return "", nil
	}
	at, err := (&reserve.Reserver{Registry: f.r.Registry, Now: f.r.Now}).Standing(ctx)
	switch {
	case err != nil:
		return "", err
	case len(at) > 0:
		return fmt.Sprintf("generation %d is being published, by %s: look again when it is done", x.Generation,
			cmp.Or(at[0].By, "an unnamed publisher")), nil
	}
	what, advice := CutChange(x)
	return what + ": " + advice, nil
}
