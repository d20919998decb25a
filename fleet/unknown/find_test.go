// SPDX-License-Identifier: Apache-2.0

package unknown

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
)

// TestFind: a machine is found by what it asked; where a liar asked by the same identifier, nobody is.
func TestFind(t *testing.T) {
	const mac = "52:54:00:12:34:56"
	here := Machine{From: "192.0.2.1", Names: []string{"rack1"}, MACs: []string{mac, "52:54:00:12:34:57"}, UUIDs: []string{uuid}, Last: at}
	moved := here
	moved.From, moved.MACs, moved.Last = "192.0.2.9", []string{here.MACs[1], mac}, at.Add(time.Hour)
	list := []Machine{here, moved, {From: "192.0.2.3", Names: []string{"n7"}, Last: at.Add(2 * time.Hour)}, {From: "192.0.2.4", MACs: []string{"52:54:00:00:00:04"}, Last: at.Add(time.Minute)}}
	for _, id := range []string{mac, strings.ToUpper(mac), here.MACs[1], uuid} {
		if m, err := (Answer{Known: true, Machines: list}).Find(id); err != nil || m.From != "192.0.2.9" {
			t.Errorf("%s: %+v, %v", id, m, err)
		}
	}
	if _, err := (Answer{Known: true, Machines: list}).Find("n7"); cli.Code(err) != cli.ExitUsage || !strings.Contains(cli.HintOf(err), mac) {
		t.Errorf("by a name: %v", err)
	}
	if _, err := (Answer{Known: true}).Find(mac); cli.Code(err) != cli.ExitUsage {
		t.Error(err)
	}
	liar := Machine{From: "203.0.113.7", MACs: []string{mac, "52:54:00:ee:ee:ee"}, Last: at.Add(3 * time.Hour)}
	if m, err := (Answer{Known: true, Machines: append(list, liar)}).Find(mac); err == nil || !strings.Contains(err.Error(), "203.0.113.7") {
		t.Errorf("a liar comes: %+v, %v", m, err)
	}
	if got := For(list, "rack1"); len(got) != 3 || got[0].From != "192.0.2.9" || got[1].From != "192.0.2.1" || got[2].From != "192.0.2.4" {
		t.Errorf("%+v", got)
	}
}
