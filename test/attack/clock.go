// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"testing"
	"time"
)

// Truth is the date of the clock rows: what an honest publisher writes.
var Truth = time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)

// Clock is an attack on what a node remembers of dates and numbers, by somebody
// who has an operator's key, a wrong hardware clock, or a state that such a clock
// has made. The node meets Fleet and Overlay, then what an
// honest publisher has made at [Truth]; attacks succeed when it does not follow.
type Clock struct {
	Name    string   `yaml:"name"`
	Checks  []string `yaml:"checks"`  // what must stop it; empty where the node is to follow anyway
	RTC     string   `yaml:"rtc"`     // hardware clock, RFC 3339; "none"; Truth when absent
	State   string   `yaml:"state"`   // state.json before; a node that follows when absent
	Fleet   *Said    `yaml:"fleet"`   // the fleet:current of the attack
	Overlay *Said    `yaml:"overlay"` // the overlay of the attack
	Raise   bool     `yaml:"raise"`   // the honest publisher raises the epoch, with the epoch key
}

// Said is a signed document about a node or a fleet. Absent dates are honest.
type Said struct {
	Issued     time.Time `yaml:"issued"`
	Epoch      uint64    `yaml:"epoch"`
	Generation uint64    `yaml:"generation"`
	Permitted  bool      `yaml:"permitted"` // the epoch key has signed the epoch
}

// Clocks returns the rows of clock.yaml.
func Clocks(t testing.TB) []Clock {
	t.Helper()
	names := map[string]bool{}
	rows := LoadClass[Clock](t, "clock")
	for _, r := range rows {
		if r.Name == "" || names[r.Name] {
			t.Fatalf("clock.yaml: row %q needs a name of its own", r.Name)
		}
		names[r.Name] = true
	}
	return rows
}

// HardwareClock returns what the row's hardware clock says; zero is none.
func (c Clock) HardwareClock(t testing.TB) time.Time {
	t.Helper()
	switch c.RTC {
	case "":
		return Truth
	case "none":
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, c.RTC)
	if err != nil {
		t.Fatalf("clock.yaml: row %q: %v", c.Name, err)
	}
	return at
}
