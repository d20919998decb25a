// SPDX-License-Identifier: Apache-2.0

package say

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

func at(minute int) time.Time { return time.Date(2026, 11, 21, 12, minute, 0, 0, time.UTC) }

// What is wrong, worst first, and what to do: each row is a node and the one finding
// that it must have.
func TestEachFindingSaysWhatToDo(t *testing.T) {
	well := func() *spec.Status {
		return &spec.Status{Node: "n", Health: spec.HealthOK, Sync: spec.SyncCurrent, Generation: 6, Overlay: "sha256:06", Layer: "sha256:0a"}
	}
	for name, c := range map[string]struct {
		make   func(*spec.Status)
		events []spec.Event
		want   spec.Finding
	}{
		"a gate failed": {
			func(s *spec.Status) {
				s.Rejected = &spec.Rejected{Generation: 7, Overlay: "sha256:07", Reason: "ready: connection refused", At: at(3)}
			},
			[]spec.Event{{Event: spec.EventGateFailed, Generation: 7, Overlay: "sha256:07", Layer: "sha256:0b", Why: "ready: connection refused", Did: "goes back to generation 6 (live), and does not try it again", Console: []string{"oom"}}},
			spec.Finding{What: "generation 7 is rejected on this node", Reason: "ready: connection refused", Generation: 7, Layer: "sha256:0b", Did: "goes back to generation 6 (live), and does not try it again", Do: "sync --retry", Since: at(3), Console: []string{"oom"}},
		},
		"three boots that panicked": {
			func(s *spec.Status) {
				s.Rejected = &spec.Rejected{Generation: 7, Overlay: "sha256:07", Reason: "3 boots of it were begun, and none came up"}
			},
			[]spec.Event{
				{Event: spec.EventCrashed, Generation: 7, Overlay: "sha256:07", Layer: "sha256:0b", Why: "Panic: no init", Did: "the machine started over", Console: []string{"Kernel panic"}},
				{Event: spec.EventLost, Generation: 7, Overlay: "sha256:07", Layer: "sha256:0b", Why: "no word", Did: "it counts as an attempt"},
			},
			spec.Finding{What: "generation 7 is rejected", Reason: "3 boots of it were begun, and none came up; Panic: no init", Generation: 7, Layer: "sha256:0b", Did: "went back to generation 6", Do: "sync --retry", Console: []string{"Kernel panic"}},
		},
		"it was undone": {
			func(s *spec.Status) {
				s.Trial = &spec.Trial{Generation: 7, Overlay: "sha256:07", Undone: "after it the registry was not reached"}
			},
			[]spec.Event{{Event: spec.EventUndone, Generation: 7, Overlay: "sha256:07", Did: "undid it"}},
			spec.Finding{What: "generation 7 was undone", Reason: "after it the registry was not reached", Generation: 7, Did: "undid it", Do: "sync --retry"},
		},
		"nothing to go back to": {
			func(s *spec.Status) { s.Health, s.HealthDetail = spec.HealthBroken, "ready: no" }, nil,
			spec.Finding{What: "did not pass its gates", Reason: "ready: no", Generation: 6, Layer: "sha256:0a", Did: "goes on with it: there is nothing better", Do: "mend what the check looks at"},
		},
		"a refusal": {
			func(s *spec.Status) { s.Sync, s.SyncDetail = spec.SyncRefused("signature"), "signed by nobody" }, nil,
			spec.Finding{What: "is refused", Code: "signature", Reason: "signed by nobody", Did: "goes on with generation 6", Do: " "},
		},
		"no registry": {
			func(s *spec.Status) { s.Sync, s.SyncDetail = spec.SyncUnreachable, "connection refused" }, nil,
			spec.Finding{What: "does not answer", Reason: "connection refused", Did: "goes on with generation 6", Do: "look at the registry"},
		},
		"an item": {
			func(s *spec.Status) {
				s.Health = spec.HealthDegraded
				s.Items = []spec.ItemStatus{{Name: "sysctl", State: spec.ItemDegraded, Error: "sysctl x: no"}}
				s.Drift = []spec.Drift{{Item: "sysctl", Key: "x", Action: spec.ActionChange}}
			}, nil,
			spec.Finding{What: "sysctl is not as the overlay says", Item: "sysctl", Key: "x", Reason: "sysctl x: no", Generation: 6, Layer: "sha256:0a", Did: "tries again", Do: "journalctl"},
		},
		"a quarantine": {
			func(s *spec.Status) {
				s.Health = spec.HealthQuarantined
				s.Items = []spec.ItemStatus{{Name: "sysctl", State: spec.ItemQuarantined}}
				s.Drift = []spec.Drift{{Item: "sysctl", Key: "y", Action: spec.ActionQuarantine, Count: 5, Rival: "tuned"}}
			}, nil,
			spec.Finding{What: "corrected 5 times without success", Item: "sysctl", Key: "y", Reason: "tuned", Generation: 6, Layer: "sha256:0a", Did: "leaves it alone", Do: "caisson-agent clear sysctl:y"},
		},
		"a secret for another key": {
			func(s *spec.Status) {
				s.Health, s.Recipient = spec.HealthDegraded, "age1own"
				s.Items = []spec.ItemStatus{{Name: "secrets", State: spec.ItemDegraded}}
				s.Drift = []spec.Drift{{Item: "secrets", Key: "db", Action: spec.ActionRefuse, Reason: "no key: it is sealed to age1other, which is not this node's key"}}
			}, nil,
			spec.Finding{Item: "secrets", Key: "db", Generation: 6, Layer: "sha256:0a", Did: "without it", Do: "caisson secrets accept SITE n --recipient age1own --replace"},
		},
		"a secret that its own key does not open": {
			func(s *spec.Status) {
				s.Health, s.Recipient = spec.HealthDegraded, "age1own"
				s.Items = []spec.ItemStatus{{Name: "secrets", State: spec.ItemDegraded}}
				s.Drift = []spec.Drift{{Item: "secrets", Key: "db", Action: spec.ActionRefuse, Reason: "no key: it is sealed to age1own, and damaged"}}
			}, nil,
			spec.Finding{Item: "secrets", Key: "db", Generation: 6, Layer: "sha256:0a", Did: "without it", Do: "take the row of db for n out of secrets.lock; then publish"},
		},
		"a disk": {
			func(s *spec.Status) {
				s.Drift = []spec.Drift{{Item: "state", Key: "disk", Action: spec.ActionRefuse, Reason: "it is full"}}
			}, nil,
			spec.Finding{What: "state disk", Item: "state", Key: "disk", Reason: "it is full", Did: "goes on", Do: "state-disk.md"},
		},
	} {
		st := well()
		c.make(st)
		w := explain(st, c.events)
		if w.Well || len(w.Findings) != 1 {
			t.Errorf("%s: %+v", name, w)
			continue
		}
		f := w.Findings[0]
		contains := strings.Contains(f.What, c.want.What) && strings.Contains(f.Reason, c.want.Reason) && strings.Contains(f.Did, c.want.Did) && strings.Contains(f.Do, c.want.Do)
		if !contains || f.Generation != c.want.Generation || f.Layer != c.want.Layer || f.Item != c.want.Item || f.Key != c.want.Key || f.Code != c.want.Code ||
			!f.Since.Equal(c.want.Since) || !slices.Equal(f.Console, c.want.Console) {
			t.Errorf("%s: %+v, want %+v", name, f, c.want)
		}
	}
}

// A node on which all is well says when something was wrong last.
func TestAllIsWell(t *testing.T) {
	st := &spec.Status{Node: "n", Health: spec.HealthOK, Sync: spec.SyncCurrent}
	w := explain(st, []spec.Event{{Event: spec.EventEntered}, {Event: spec.EventLost, Generation: 3, Time: at(1)}, {Event: spec.EventUp}})
	if !w.Well || len(w.Findings) != 0 || w.Last == nil || w.Last.Generation != 3 {
		t.Errorf("%+v", w)
	}
	if w := explain(st, nil); !w.Well || w.Last != nil {
		t.Errorf("%+v", w)
	}
}
