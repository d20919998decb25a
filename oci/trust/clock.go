// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec/refusal"
)

const (
	year = 365 * 24 * time.Hour

	// skew is how far the publisher's clock may be ahead of the node's.
	skew = 24 * time.Hour
	// service is how long an agent is in use at most. Where no hardware clock
	// counts, no date after it does.
	service = 10 * year
	// silence is how long after the newest statement a hardware clock may be. A
	// fleet that nobody has published to for longer has other worries.
	silence = 5 * year
)

// Clock holds a node's sources of the time. Metal boots with clocks that say 1970
// or 2100, or with none, and the network's time is not signed.
//
// The hardware clock counts when it is plausible. A date in a statement moves
// the node's clock by a day where the hardware clock counts, and never beyond
// the agent's time of service; so a wrong date, signed once, ends nothing. TLS
// never uses a statement's date.
type Clock struct {
	RTC    time.Time // hardware clock; zero when there is none
	Build  time.Time // of the agent: it cannot be earlier
	Newest time.Time // newest issuedAt of any statement accepted before; zero at first

	rtc, date check.List[instant] // nil is all checks
}

// firstRelease stands in for the build of an agent that does not know it.
var firstRelease = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (c Clock) build() time.Time {
	if c.Build.IsZero() {
		return firstRelease
	}
	return c.Build
}

// Now returns the latest of what is known and credible. sure says whether the
// hardware clock counted. issuedAt is that of a statement whose signature is good.
func (c Clock) Now(issuedAt time.Time) (now time.Time, sure bool) {
	sure = c.counts(issuedAt)
	if now = c.build(); sure {
		now = c.RTC
	}
	for _, said := range []time.Time{c.Newest, issuedAt} {
		if said.After(now) && c.credible(said, sure) {
			now = said
		}
	}
	return now, sure
}

// Credible reports whether a statement's date may count, and be remembered.
func (c Clock) Credible(issuedAt time.Time) bool {
	return c.credible(issuedAt, c.counts(issuedAt))
}

// Ticking returns the clock for TLS, from now on, as a function: a machine
// without a hardware clock still counts seconds. Where the clock is not sure it
// is not after the present, and "not yet valid" says nothing.
func (c Clock) Ticking() (now func() time.Time, sure bool) {
	start := time.Now()
	base := c.build()
	if sure = c.counts(time.Time{}); sure {
		base = c.RTC
	}
	return func() time.Time { return base.Add(time.Since(start)) }, sure
}

func (c Clock) counts(issuedAt time.Time) bool {
	checks := c.rtc
	if checks == nil {
		checks = rtcChecks
	}
	return checks.Run(instant{c, issuedAt, false}) == nil
}

func (c Clock) credible(issuedAt time.Time, sure bool) bool {
	checks := c.date
	if checks == nil {
		checks = dateChecks
	}
	return checks.Run(instant{c, issuedAt, sure}) == nil
}

// instant is a date beside the clock that judges it.
type instant struct {
	clock Clock
	date  time.Time // issuedAt of a statement
	sure  bool      // the hardware clock counts
}

// rtcChecks say when the hardware clock counts.
var rtcChecks = check.List[instant]{
	{Name: "hardware clock: not before the build", OK: rtcAfterBuild},
	{Name: "hardware clock: not years after the newest statement", OK: rtcNearStatements},
}

func rtcAfterBuild(i instant) error {
	return refusal.If(i.clock.RTC.IsZero() || i.clock.RTC.Before(i.clock.build()), refusal.Validity,
		"the hardware clock says %s, the agent was built at %s", i.clock.RTC, i.clock.build())
}

func rtcNearStatements(i instant) error {
	newest := i.clock.build()
	for _, said := range []time.Time{i.clock.Newest, i.date} {
		// Without the limit, a statement of 2090 would make a clock of 2094 count.
		if said.After(newest) && !said.After(i.clock.build().Add(service)) {
			newest = said
		}
	}
	return refusal.If(i.clock.RTC.After(newest.Add(silence)), refusal.Validity, "the hardware clock says %s, the newest statement has %s",
		i.clock.RTC, newest)
}

// dateChecks say which dates of statements count.
var dateChecks = check.List[instant]{
	{Name: "date: within a day of the hardware clock", OK: dateNearRTC},
	{Name: "date: within the agent's time of service", OK: dateInService},
}

func dateNearRTC(i instant) error {
	return refusal.If(i.sure && i.date.After(i.clock.RTC.Add(skew)), refusal.Validity, "issued at %s, it is %s", i.date, i.clock.RTC)
}

func dateInService(i instant) error {
	return refusal.If(!i.sure && i.date.After(i.clock.build().Add(service)), refusal.Validity, "issued at %s, the agent was built at %s",
		i.date, i.clock.build())
}
