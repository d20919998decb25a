// SPDX-License-Identifier: Apache-2.0

package trust

import "time"

// believable is how far after the newest statement a hardware clock may be. A
// fleet that nobody has published to for longer has other worries.
const believable = 5 * 365 * 24 * time.Hour

// Clock is what a node knows of the time. Metal boots with clocks that say 1970
// or 2100, or with none, and the network's time is not signed.
type Clock struct {
	RTC    time.Time // hardware clock; zero when there is none
	Build  time.Time // of the agent: it cannot be earlier
	Newest time.Time // newest issuedAt of any statement accepted before; zero at first
}

// Now is the newest of what is known. A hardware clock before the build, or more
// than 5 years after the newest statement, counts as none; sure says whether it
// counted. issuedAt is that of a statement whose signature is good.
func (c Clock) Now(issuedAt time.Time) (now time.Time, sure bool) {
	newest := c.Newest
	if issuedAt.After(newest) {
		newest = issuedAt
	}
	now = newest
	if c.Build.After(now) {
		now = c.Build
	}
	if c.RTC.IsZero() || c.RTC.Before(c.Build) || c.RTC.After(newest.Add(believable)) {
		return now, false
	}
	if c.RTC.After(now) {
		now = c.RTC
	}
	return now, true
}

// Ticking returns the clock from now on, as a function that a TLS client can
// call: a machine without a hardware clock still counts seconds.
func (c Clock) Ticking() (now func() time.Time, sure bool) {
	start := time.Now()
	base, sure := c.Now(time.Time{})
	return func() time.Time { return base.Add(time.Since(start)) }, sure
}
