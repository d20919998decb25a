// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
)

// limits are how long the loader waits. Whatever waits has one.
type limits struct {
	ask   time.Duration // for the registry's answer
	soon  time.Duration // for a newer layer, where a good one is on the disk
	only  time.Duration // for the only layer there is, before everything is asked again
	pause time.Duration // before the second try; it grows
	hang  time.Duration // without any progress, before the machine starts over; more than all of the above
	trial time.Duration // for a loader on trial to find what to boot, before the machine starts over
	talk  time.Duration // between two lines about the same wait
	hint  time.Duration // between two hints to the fleet's service
}

// usual holds the limits of a machine's boot. In a minute an ordinary line brings an
// ordinary layer; a slower one is the service's business, not the boot's.
var usual = limits{ask: time.Minute, soon: time.Minute, only: 10 * time.Minute, pause: 2 * time.Second, hang: 15 * time.Minute, trial: 10 * time.Minute, talk: 5 * time.Second, hint: 15 * time.Minute}

// from returns the limits with what the command line says of them. No wait may be
// longer than the silence that starts the machine over.
func (l limits) from(words []string) limits {
	l.soon = min(identity.Seconds(words, "caisson.patience", l.soon), l.only)
	l.trial = identity.Seconds(words, "caisson.trial", l.trial)
	return l
}
