// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Back holds the overlays to which nodes of a rollout go back, ready to be signed.
type Back struct {
	// Stay has the nodes that keep what they have, with why. One that has already what
	// it had then is not among them, and neither is one without a row.
	Stay map[string]string
	// Lost says what cannot be given back at all, and to how many nodes; nil is nothing.
	Lost error

	Work []publish.Work // of the nodes that go back
}

// ReadyBack prepares what nodes had in a generation. given has the digest of the overlay that
// each was to get since: a node that got yet another one stays as it is, and so does one
// that is held, or that had nothing then.
func ReadyBack(ctx context.Context, fleet *published.Fleet, given map[string]string, to spec.Floor) (*Back, error) {
	f := (&publish.Publisher{Reader: fleet.Reader()}).Run(fleet)
	b := &returning{editing: &editing{Run: f}, back: &Back{Stay: map[string]string{}}, given: given, lost: map[string][]string{}}
	var todo []publish.Work
	for _, name := range slices.Sorted(maps.Keys(given)) {
		row, there, err := f.State.Index.Row(ctx, name)
		if err != nil {
			return nil, err
		}
		if there { // else it was retired, or left the site
			todo = append(todo, publish.Work{Node: publish.Node{Name: name}, Was: &row})
		}
	}
	past, err := f.Past(ctx, generationOf(to))
	switch { // without it, their rows say what they had before the present
	case errors.Is(err, published.ErrNotKept):
		b.before, b.gone = to, "which was removed"
	case refusal.OfKeys(err):
		b.before, b.gone = to, "which only keys signed that count no more"
	case err != nil:
		return nil, err
	}
	if err := publish.ForEach(ctx, todo, func(ctx context.Context, w *publish.Work) error { return b.prepare(ctx, past, w) }); err != nil {
		return nil, err
	}
	b.back.Work = slices.DeleteFunc(todo, func(w publish.Work) bool { return w.Overlay == "" })
	b.back.Lost = b.lostError()
	return b.back, nil
}

// returning is a run over the nodes that go back.
type returning struct {
	*editing
	back   *Back
	given  map[string]string
	before spec.Floor // the generation, where its root cannot be had
	gone   string     // why not

	lost map[string][]string // what is gone, or may not run → nodes
}

func (b *returning) prepare(ctx context.Context, past *published.Past, w *publish.Work) error {
	was, err := b.contentThen(ctx, past, w)
	if err != nil {
		return err
	}
	w.Holds, _ = published.SplitHolds(w.Was.Holds, b.Publisher.Now)
	switch {
	case was != nil && was.Overlay == w.Was.Overlay:
		return nil
	case len(w.Holds) > 0:
		b.keepNode(w, published.WhyHeld(w.Holds))
		return nil
	case w.Was.Overlay != b.given[w.Name]:
		b.keepNode(w, "it got something else since")
		return nil
	case was == nil && past == nil:
		b.noteLost(w, fmt.Sprintf("what was published in generation %s, %s", generationOf(b.before), b.gone))
		return nil
	case was == nil:
		b.keepNode(w, "nothing was published for it before")
		return nil
	}
	o, err := b.contentOf(ctx, w, was)
	if published.Lost(err) {
		b.noteLost(w, err.Error())
		return nil
	} else if err != nil {
		return err
	}
	w.Kept = true
	return b.sign(ctx, w, o, was)
}

// contentThen returns what a node had then, nil where that was nothing or is not known.
func (b *returning) contentThen(ctx context.Context, past *published.Past, w *publish.Work) (*spec.Content, error) {
	if past != nil {
		was, _, err := contentBefore(ctx, past, w)
		return was, err
	}
	// What a row had before the present is from then only if it is older.
	if was := w.Was.Before; was != nil && was.Generation <= b.before.Generation && w.Was.Overlay == b.given[w.Name] &&
		b.State.Index.Root.Epoch == b.before.Epoch {
		return was, nil
	}
	return nil, nil
}

func (b *returning) keepNode(w *publish.Work, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back.Stay[w.Name] = why
}

func (b *returning) noteLost(w *publish.Work, what string) {
	b.keepNode(w, "it cannot go back: "+what)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost[what] = append(b.lost[what], w.Name)
}

// lostError names all that cannot be given back.
func (b *returning) lostError() error {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(b.lost)) {
		nodes := b.lost[what]
		slices.SortFunc(nodes, plain.Natural)
		all = append(all, fmt.Sprintf("%s (%s)", what, firstOf(nodes)))
	}
	if all == nil {
		return nil
	}
	return cli.Hint("'caisson freeze' takes nodes out of this: then the others go back; a rollout with --layer gives them another layer",
		"what nodes had before is not available: %s", strings.Join(all, "; "))
}

// firstOf names the first of some nodes.
func firstOf(nodes []string) string {
	if len(nodes) == 1 {
		return "node " + nodes[0]
	}
	return fmt.Sprintf("node %s and %d more", nodes[0], len(nodes)-1)
}

func generationOf(f spec.Floor) published.Generation {
	return published.Generation{Epoch: f.Epoch, Number: f.Generation}
}
