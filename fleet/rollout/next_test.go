// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/spec"
)

// One wave of two nodes that began an hour ago, on the hour.
func TestNext(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	begun := now.Add(-20 * time.Minute)
	plan := &spec.RolloutPlan{Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "new", "b": "new"}}},
		Rule: spec.RolloutRule{Soak: 600, Deadline: 1800, Silence: 900, Undo: spec.UndoWave}}
	rows := index.Rows{"a": {Overlay: "new"}, "b": {Overlay: "new"}}
	well := report.Standing{At: now, Overlay: "new", Well: begun}
	for _, c := range []struct {
		name   string
		b      report.Standing
		pinned bool
		shown  bool // only nodes that are attested count
		late   bool
		after  time.Duration // instead of an hour, where it is late
		act    Act
		reason string
	}{
		{name: "both are well", b: well, act: Finish},
		{name: "it soaks", b: report.Standing{At: now, Overlay: "new", Well: now.Add(-time.Minute)}, act: Wait, reason: "soaking"},
		{name: "what was well before says nothing of this wave", b: report.Standing{At: begun.Add(time.Minute), Overlay: "new", Well: begun.Add(-time.Hour)}, act: Halt, reason: "b (silent since "},
		{name: "not there yet", b: report.Standing{At: now, Overlay: "old", Well: begun}, act: Wait, reason: "1 healthy, 1 pending: b"},
		{name: "a little trouble on the way", b: report.Standing{At: now, Overlay: "new", Trouble: "degraded"}, act: Wait, reason: "pending"},
		{name: "trouble at the deadline", b: report.Standing{At: now.Add(time.Hour), Overlay: "new", Trouble: "degraded: x"}, late: true, act: Halt, reason: "b (degraded: x)"},
		{name: "it refuses", b: report.Standing{At: now, Overlay: "old", Refused: "epoch", RefusedSince: begun.Add(time.Minute)}, act: Halt, reason: "b (it refuses the overlay: epoch)"},
		{name: "it waits for its window, however late", b: report.Standing{At: now.Add(time.Hour), Overlay: "old", Waiting: "window night"}, late: true, act: Wait, reason: "b waits for window night"},
		{name: "it waits for its window a month", b: report.Standing{At: now.Add(31 * day), Overlay: "old", Waiting: "window night"}, late: true, after: 31 * day, act: Wait, reason: "b waits for window night"},
		{name: "it says that it waits, for ever", b: report.Standing{At: now.Add(36 * day), Overlay: "old", Waiting: "window night"}, late: true, after: 36 * day, act: Halt, reason: "b (it waits for window night since the wave began, longer than any window)"},
		{name: "its window has let it in at last, and it soaks", b: report.Standing{At: now.Add(34 * day), Overlay: "new", Well: now.Add(34*day - time.Minute)}, late: true, after: 34 * day, act: Wait, reason: "soaking: b"},
		{name: "it is always well since just now", b: report.Standing{At: now.Add(36 * day), Overlay: "new", Well: now.Add(36*day - time.Minute)}, late: true, after: 36 * day, act: Halt, reason: "b (it was never healthy for 10m0s; healthy last since 2026-12-27T11:59:00Z)"},
		{name: "its window has opened, and it does not run it yet", b: report.Standing{At: now.Add(time.Hour), Staged: "new", Overlay: "old"}, late: true, act: Wait, reason: "b (it is staged)"},
		{name: "it is staged, and in trouble", b: report.Standing{At: now.Add(time.Hour), Staged: "new", Overlay: "old", Trouble: "degraded"}, late: true, act: Halt, reason: "b (it does not report the overlay)"},
		{name: "it refuses what was published before", b: report.Standing{At: now, Overlay: "old", Refused: "epoch", RefusedSince: begun.Add(-time.Minute)}, act: Wait, reason: "1 pending: b"},
		{name: "it still refuses at the deadline", b: report.Standing{At: now.Add(time.Hour), Overlay: "old", Refused: "epoch", RefusedSince: begun.Add(-time.Minute)}, late: true, act: Halt, reason: "b (it refuses the overlay: epoch)"},
		{name: "it waited for its window, and says nothing any more", b: report.Standing{At: now, Overlay: "old", Waiting: "window night"}, late: true, act: Halt, reason: "b (silent since "},
		{name: "silent", b: report.Standing{At: begun.Add(-time.Second), Overlay: "old"}, late: true, act: Halt, reason: "b (silent since the wave began)"},
		{name: "the service could not hear it while it soaked", b: report.Standing{At: begun.Add(time.Minute), Listens: now.Add(-time.Minute), Overlay: "new", Well: begun.Add(-time.Hour)}, act: Wait, reason: "soaking"},
		{name: "it soaked, and the service has heard nothing since", b: report.Standing{At: begun.Add(time.Minute), Listens: now.Add(-16 * time.Minute), Overlay: "new", Well: begun.Add(-time.Hour)}, act: Halt, reason: "b (silent since "},
		{name: "the deadline passed while the service could not hear it", b: report.Standing{At: begun.Add(-time.Second), Listens: now.Add(59 * time.Minute), Overlay: "old"}, late: true, act: Wait, reason: "1 healthy, 1 pending: b"},
		{name: "its window may have opened while the service could not hear it", b: report.Standing{At: now, Listens: now.Add(59 * time.Minute), Overlay: "old", Waiting: "window night"}, late: true, act: Wait, reason: "b waits for window night"},
		{name: "a key of one boot does not count", b: well, pinned: true, act: Wait, reason: "2 pending"},
		{name: "both are attested", b: report.Standing{At: now, Overlay: "new", Well: begun, Attests: true}, shown: true, act: Finish},
		{name: "its TPM has not shown what it runs", b: report.Standing{At: now, Overlay: "new", Well: begun, Stale: true}, shown: true, act: Wait, reason: "b (its report does not count: its TPM has not shown what it runs)"},
		{name: "it is not attested at the deadline", b: report.Standing{At: now.Add(time.Hour), Overlay: "new", Well: begun}, shown: true, late: true, act: Halt, reason: "b (silent since the wave began: its report does not count: its TPM has not"},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, a := now, well
			if c.late {
				now = now.Add(cmp.Or(c.after, time.Hour))
				a.At = now
			}
			p := *plan
			if c.pinned {
				p.Rule.Grade = spec.GradePinned
			}
			if c.shown {
				p.Rule.Grade, a.Attests = spec.GradeAttested, true
			}
			row := spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: begun.Unix()}}}
			d := Next(&p, row, Known{Rows: rows, Reports: map[string]report.Standing{"a": a, "b": c.b}}, now)
			if d.Act != c.act || !strings.Contains(d.Reason, c.reason) {
				t.Errorf("%s %q, want %s with %q", d.Act, d.Reason, c.act, c.reason)
			}
		})
	}
}

// TestANodeThatBootsAgain: one that was attested in its wave, and has booted since, does not halt
// the rollout before it has quoted; one whose TPM shows something else does.
func TestANodeThatBootsAgain(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	begun := now.Add(-2 * time.Hour)
	plan := &spec.RolloutPlan{Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "new"}}, {Name: "2", Nodes: map[string]string{"b": "new"}}},
		Rule: spec.RolloutRule{Soak: 600, Deadline: 1800, Silence: 900, Undo: spec.UndoWave, Grade: spec.GradeAttested}}
	rows := index.Rows{"a": {Overlay: "new"}, "b": {Overlay: "new"}}
	row := spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: begun.Unix(), Done: begun.Add(time.Hour).Unix()}, {Begun: begun.Add(time.Hour).Unix()}}}
	well := report.Standing{At: now, Overlay: "new", Well: begun, Attests: true}
	for stale, act := range map[bool]Act{true: Finish, false: Halt} {
		a := well
		a.Attests, a.Stale = false, stale
		d := Next(plan, row, Known{Rows: rows, Reports: map[string]report.Standing{"a": a, "b": well}}, now)
		if d.Act != act {
			t.Errorf("stale %v: %s %q", stale, d.Act, d.Reason)
		}
	}
}

// A wave does not begin without nodes that the service could not hear; those that say
// nothing to a service that listens are left out.
func TestBeginAfterTheServiceWasGone(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	plan := &spec.RolloutPlan{Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "new", "b": "new"}}}, Rule: spec.RolloutRule{Silence: 900}}
	rows := index.Rows{"a": {Overlay: "old"}, "b": {Overlay: "old"}}
	for listens, want := range map[time.Duration]Act{time.Minute: Wait, 16 * time.Minute: Begin} {
		reports := map[string]report.Standing{"a": {At: now}, "b": {At: now.Add(-time.Hour), Listens: now.Add(-listens)}}
		d := Next(plan, spec.Rollout{Phase: spec.RolloutRunning}, Known{Rows: rows, Reports: reports}, now)
		if d.Act != want || want == Wait && !strings.Contains(d.Reason, "has no report of b yet") || want == Begin && d.Of[0].LeftOut["b"] == "" {
			t.Errorf("it listens for %s: %+v", listens, d)
		}
	}
}

// TestNodesThatReportSeldom: nodes whose reports go by a registry, each hour, are in the
// waves of a rollout that says nothing of silence, and are well without a word in between.
func TestNodesThatReportSeldom(t *testing.T) {
	begun := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	plan := &spec.RolloutPlan{Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "new"}}}, Rule: spec.RolloutRule{Soak: 600, Deadline: 3600, Silence: 1800}}
	for _, c := range []struct {
		name     string
		of       time.Duration // of the report
		now      time.Duration
		interval time.Duration
		runs     bool
		act      Act
		reason   string
	}{
		{"its last report is of an hour ago", -time.Hour, 0, time.Hour, false, Begin, ""},
		{"its last two are missing", -3 * time.Hour, 0, time.Hour, false, Begin, ""},
		{"it is silent", -3*time.Hour - 2*time.Minute, 0, time.Hour, false, Wait, "none of its nodes reports"},
		{"one that reports often is silent sooner", -31 * time.Minute, 0, 5 * time.Minute, false, Wait, "none of its nodes reports"},
		{"it said that it runs it, and nothing since", time.Minute, 50 * time.Minute, time.Hour, true, Wait, "soaking"},
		{"it says so still", time.Hour, time.Hour, time.Hour, true, Finish, ""},
		{"it ended while it soaked", time.Minute, 3*time.Hour + 3*time.Minute, time.Hour, true, Halt, "a (silent since "},
		{"one that reports often ended", time.Minute, 32 * time.Minute, 5 * time.Minute, true, Halt, "a (silent since "},
	} {
		r := report.Reported{Node: "a", Received: begun.Add(c.of), Interval: int64(c.interval / time.Second), Overlay: "old", Axes: spec.Axes{Health: spec.Axis{State: string(spec.HealthOK)}}}
		row, rows := spec.Rollout{Phase: spec.RolloutRunning}, index.Rows{"a": {Overlay: "old"}}
		if c.runs {
			r.Overlay, rows["a"], row.Waves = "new", spec.Published{Overlay: "new"}, []spec.RolloutWave{{Begun: begun.Unix()}}
		}
		d := Next(plan, row, Known{Rows: rows, Reports: map[string]report.Standing{"a": report.StandingOf(r)}}, begun.Add(c.now))
		if d.Act != c.act || !strings.Contains(d.Reason, c.reason) {
			t.Errorf("%s: %s %q, want %s with %q", c.name, d.Act, d.Reason, c.act, c.reason)
		}
	}
}

// A wave does not end while a node that runs what it was given may go back by itself, whatever the
// time of the rollout's soak.
func TestAWaveWaitsForTheNodesOwnVerdict(t *testing.T) {
	begun := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, soak := range []int64{0, 600} {
		plan := &spec.RolloutPlan{Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "new"}}}, Rule: spec.RolloutRule{Soak: soak, Silence: 900, Deadline: 3600}}
		row, rows := spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: begun.Unix()}}}, index.Rows{"a": {Overlay: "new"}}
		for state, want := range map[spec.Activity]Act{spec.ActivitySoaking: Wait, spec.ActivityWaiting("confirm"): Wait, spec.ActivityIdle: Finish} {
			now := begun.Add(30 * time.Minute)
			r := report.Reported{Node: "a", Received: now, Overlay: "new", Axes: spec.Axes{Activity: spec.Axis{State: string(state)},
				Health: spec.Axis{State: string(spec.HealthOK), Since: begun}}}
			if d := Next(plan, row, Known{Rows: rows, Reports: map[string]report.Standing{"a": report.StandingOf(r)}}, now); d.Act != want {
				t.Errorf("%s, soak %d: %s %q, want %s", state, soak, d.Act, d.Reason, want)
			}
			now = begun.Add(longestWait + 2*time.Hour)
			r.Received = now
			d := Next(plan, row, Known{Rows: rows, Reports: map[string]report.Standing{"a": report.StandingOf(r)}}, now)
			if want == Wait && (d.Act != Halt || !strings.Contains(d.Reason, "it has not passed its checks")) {
				t.Errorf("%s for ever: %s %q", state, d.Act, d.Reason)
			}
		}
	}
}

func TestHalts(t *testing.T) {
	for _, c := range []struct {
		count, percent, failed, n int
		want                      bool
	}{
		{0, 0, 0, 10, false}, {0, 0, 1, 10, true}, {2, 0, 1, 10, false}, {2, 0, 2, 10, true},
		{0, 20, 1, 10, false}, {0, 20, 2, 10, true}, {5, 10, 1, 10, true}, {0, 100, 9, 10, false}, {0, 1, 1, 1, true},
	} {
		if got := halts(spec.RolloutRule{Count: c.count, Percent: c.percent}, c.failed, c.n); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A node whose report cannot be read is silent.
func TestAReportThatCannotBeRead(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	plan := &spec.RolloutPlan{Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"a": "new", "b": "new"}}}, Rule: spec.RolloutRule{Silence: 900, Deadline: 600}}
	reports := map[string]report.Standing{"a": {Garbled: "bad"}, "b": {At: now, Overlay: "old"}}
	d := Next(plan, spec.Rollout{Phase: spec.RolloutRunning}, Known{Rows: index.Rows{"a": {}, "b": {}}, Reports: reports}, now)
	if d.Act != Begin || d.Of[0].LeftOut["a"] != "silent: its report does not count: bad" || len(d.Nodes) != 1 {
		t.Errorf("%+v", d)
	}
	row := spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: now.Add(-time.Hour).Unix()}}}
	d = Next(plan, row, Known{Rows: index.Rows{"a": {Overlay: "new"}, "b": {Overlay: "new"}}, Reports: reports}, now)
	if d.Act != Halt || d.Of[0].Failed["a"] != "silent since the wave began: its report does not count: bad" {
		t.Errorf("%+v", d)
	}
}
