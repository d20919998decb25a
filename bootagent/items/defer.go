// SPDX-License-Identifier: Apache-2.0

package items

import (
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/spec"
)

// deferFor is how long something may be missing before that degrades the node: a
// module, a card or a disk that comes later is there by then; a mistyped name
// never is.
const deferFor = 10 * time.Minute

// Age gives drift the time since which it is so, and who made it so, from the drift of
// the last look, and degrades what is deferred for too long. up is how long this
// kernel runs: an older time was read from a clock that was set since.
func (r *Result) Age(last []spec.Drift, now time.Time, up time.Duration) {
	type key struct {
		item, key string
		deferred  bool
	}
	keyOf := func(d spec.Drift) key { return key{d.Item, d.Key, d.Action == spec.ActionDefer} }
	before := map[key]spec.Drift{}
	for _, d := range last {
		before[keyOf(d)] = d
	}
	late := map[string]error{}
	for n := range r.Drift {
		d := &r.Drift[n]
		if d.Item == exec.Name {
			continue // a script waits for another one, which shows by itself
		}
		was := before[keyOf(*d)]
		if d.Rival == spec.RivalUnknown && was.Rival != "" && was.From == d.From {
			d.Rival = was.Rival
		}
		if d.Since.IsZero() && !was.Since.After(now) && now.Sub(was.Since) <= up {
			d.Since = was.Since
		}
		if d.Since.IsZero() {
			d.Since = now.UTC().Truncate(time.Second)
		}
		if d.Action != spec.ActionDefer {
			continue
		}
		if missing := now.Sub(d.Since); missing > deferFor {
			late[d.Item] = errors.Join(late[d.Item], fmt.Errorf("%w; for %v", left(*d), missing.Truncate(time.Minute)))
		}
	}
	for n := range r.Items {
		s := &r.Items[n]
		if err := late[s.Name]; err != nil {
			if s.Error != "" {
				err = errors.Join(errors.New(s.Error), err)
			}
			s.State, s.Error = spec.ItemDegraded, err.Error()
		}
	}
	if len(late) > 0 {
		r.Health = r.Health.And(spec.HealthDegraded)
	}
}
