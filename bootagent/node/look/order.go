// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item/unitorder"
	"github.com/caisson-os/caisson/spec"
)

// Units is the systemd that runs the node.
type Units interface {
	// Times says when a unit began to start and when it was there, by the kernel's clock; 0 is not yet.
	Times(ctx context.Context, unit string) (began, there time.Duration, err error)
}

// brokenOrders says of which mounts the order of their before and after did not hold in this boot.
// What has not begun by now waits for the agent, as it is to.
func (l *Look) brokenOrders(mounts []spec.Mount) (broken []string) {
	if l.Units == nil {
		return nil
	}
	times := func(unit string) (began, there time.Duration) {
		began, there, err := l.Units.Times(context.Background(), unit) // which has a deadline of its own
		if err != nil {
			l.Effect.Log.Say("when %s was started is not known: %v", unit, err)
		}
		return began, there
	}
	for _, m := range mounts {
		if len(m.Before)+len(m.After) == 0 {
			continue
		}
		_, mounted := times(unitorder.MountUnit(m.Target))
		if mounted == 0 {
			continue // which the look itself reports
		}
		for _, unit := range m.Before {
			if began, _ := times(unit); began != 0 && began < mounted {
				broken = append(broken, fmt.Sprintf("%s began %v before %s was mounted", unit, (mounted-began).Round(time.Millisecond), m.Target))
			}
		}
		for _, unit := range m.After {
			if began, there := times(unit); began != 0 && (there == 0 || there > mounted) {
				broken = append(broken, fmt.Sprintf("%s was not there when %s was mounted", unit, m.Target))
			}
		}
	}
	return broken
}
