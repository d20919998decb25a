// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// aged is a secret of which nodes would get another value than they have, or none.
type aged struct {
	name     string
	replaced bool // it was sealed to another recipient than the node has now, or is accepted with
}

// noteSecrets notes which secrets of an overlay are not those that a node has now.
func (e *editing) noteSecrets(ctx context.Context, w *publish.Work, o *spec.Overlay) error {
	if len(o.Secrets) == 0 || e.order.OldSecrets {
		return nil
	}
	looked, err := e.Signed(ctx, w.Name)
	if err != nil {
		return err
	}
	accepted := func(to string) bool { return e.order.Recipients == nil || e.order.Recipients[w.Name] == to }
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range o.Secrets {
		now := looked.Overlay.Secret(s.Name)
		if now != nil && *now == s && accepted(s.To) {
			continue
		}
		if e.older == nil {
			e.older = map[aged][]string{}
		}
		one := aged{s.Name, now != nil && now.To != s.To || !accepted(s.To)}
		e.older[one] = append(e.older[one], w.Name)
	}
	return nil
}

// olderSecrets refuses what would bring secrets back.
func olderSecrets(older map[aged][]string) error {
	if len(older) == 0 {
		return nil
	}
	var lines []string
	for one, nodes := range older {
		what := "would be an older one:"
		if one.replaced {
			what = "was sealed to a recipient that no longer belongs to"
		}
		slices.SortFunc(nodes, plain.Natural)
		lines = append(lines, fmt.Sprintf("secret %s %s %s", one.name, what, plain.Some(nodes, 5)))
	}
	slices.Sort(lines)
	return cli.Hint("--old-secrets publishes them all the same; 'caisson publish' seals the present ones", "%s", strings.Join(lines, "; "))
}
