// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// facts are those of a node of which every series can be made.
func facts() *Facts {
	now := time.Unix(1790000000, 0).UTC()
	night := spec.Window{Intervals: []spec.Interval{{From: now.Add(-time.Hour), To: now.Add(time.Hour)}, {From: now.Add(23 * time.Hour), To: now.Add(25 * time.Hour)}}}
	return &Facts{Now: now,
		Status: &spec.Status{Node: "node1", Fleet: "metal-a", Mode: spec.ModeDisk, Tracking: spec.Following, Sync: spec.SyncRefused("expired"), Health: spec.HealthDegraded,
			Activity: spec.ActivityWaiting("disks/trim"), TrackingSince: now, SyncSince: now, HealthSince: now, ActivitySince: now, Asked: now, Expires: now,
			Generation: 7, Epoch: 1, Overlay: "sha256:aa", Layer: "sha256:bb", LayerVersion: "2026.1", Agent: `v1 "x"\`, Staged: "sha256:cc", Pause: &spec.Pause{},
			Items:      []spec.ItemStatus{{Name: "sysctl", Applied: 3}, {Name: "mounts"}},
			Drift:      []spec.Drift{{Item: "sysctl", Key: "a", Action: spec.ActionChange}, {Item: "sysctl", Key: "b", Action: spec.ActionDefer}, {Item: "state", Key: "disk", Action: spec.ActionRefuse}},
			Services:   []spec.ServiceStatus{{Name: "web", Commit: "0123456789abcdef0123456789abcdef01234567"}},
			Operations: []spec.OperationStatus{{Name: "disks/trim", State: spec.OperationWaiting, Since: now, Next: now, Missed: 2, Slot: "storage"}}},
		Maintenance: &spec.Maintenance{Horizon: now, Slots: map[string]spec.Slot{"db": {}, "storage": {}}, Windows: map[string]spec.Window{"night": night}},
		Counts: record.Counts{Drift: map[string]uint64{"sysctl": 5}, Corrections: map[string]uint64{"sysctl": 4}, Fetches: map[string]uint64{"ok": 9}, Verified: now.Unix(), Transitions: map[string]uint64{"proved": 2},
			Artifacts: map[string]record.Artifact{"overlay": {Digest: "sha256:aa", Since: now.Unix()}}}}
}

func TestText(t *testing.T) {
	text := string(Text(facts()))
	for _, want := range []string{
		"# HELP caisson_generation Generation of the overlay that the node runs.\n# TYPE caisson_generation gauge\ncaisson_generation 7\n",
		`caisson_node_info{node="node1",fleet="metal-a",mode="disk",agent="v1 \"x\"\\",layer="2026.1"} 1` + "\n",
		`caisson_sync_state{state="current"} 0` + "\n", `caisson_sync_state{state="refused"} 1` + "\n",
		`caisson_health_state{state="ok"} 0` + "\n", `caisson_health_state{state="degraded"} 1` + "\n",
		`caisson_activity_state{state="waiting"} 1` + "\n", `caisson_waiting_reason{reason="disks/trim"} 1` + "\n",
		`caisson_drift{kind="mounts"} 0` + "\n", `caisson_drift{kind="state"} 1` + "\n", `caisson_drift{kind="sysctl"} 1` + "\n", `caisson_deferred{kind="sysctl"} 1` + "\n",
		`caisson_drift_total{kind="sysctl"} 5` + "\n", `caisson_corrections_total{kind="mounts"} 0` + "\n", `caisson_corrections_total{kind="sysctl"} 4` + "\n",
		`caisson_transitions_total{transition="proved"} 2` + "\n",
		`caisson_fetch_total{result="ok"} 9` + "\n", `caisson_fetch_total{result="unreachable"} 0` + "\n",
		`caisson_service_info{service="web",commit="0123456789abcdef0123456789abcdef01234567"} 1` + "\n",
		`caisson_window_open{window="night"} 1` + "\n", `caisson_window_next_timestamp_seconds{window="night"} 1790082800` + "\n",
		`caisson_operation_state{operation="disks/trim",state="waiting"} 1` + "\n", `caisson_operation_state{operation="disks/trim",state="failed"} 0` + "\n",
		`caisson_operation_missed{operation="disks/trim"} 2` + "\n", `caisson_slot_held{group="db"} 0` + "\n", `caisson_slot_held{group="storage"} 1` + "\n", "caisson_staged 1\n", "caisson_paused 1\n", "caisson_last_verify_timestamp_seconds 1790000000\n",
	} {
		if !strings.Contains("\n"+text, "\n"+want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, f := range table {
		if n := strings.Count(text, "# TYPE "+f.Name+" "); n != 1 {
			t.Errorf("%s: %d times", f.Name, n)
		}
	}
	if again := Text(facts()); !bytes.Equal(again, []byte(text)) {
		t.Error("two runs, two texts")
	}
}

// A node that knows nothing yet has fewer series, and no head without one.
func TestTextOfLittle(t *testing.T) {
	text := string(Text(&Facts{Status: &spec.Status{Tracking: "later"}}))
	if !strings.Contains(text, `caisson_tracking_state{state="later"} 1`) || strings.Contains(text, "caisson_window") || strings.Contains(text, "timestamp") {
		t.Error(text)
	}
}

// Prometheus itself reads every text that there can be, and finds nothing to say
// about the names.
func TestPromtool(t *testing.T) {
	require.Tool(t, "promtool")
	odd := facts()
	odd.Status.Node = "a\nb\xff\"\\{}"
	for name, f := range map[string]*Facts{"full": facts(), "little": {Status: &spec.Status{}}, "odd": odd} {
		cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
		cmd.Stdin = bytes.NewReader(Text(f))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// docs/metrics.md has a row for each series, with its type and labels, and no other.
func TestDocumentation(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(caisson_[a-z_]+)` \\| (gauge|counter) \\| ([^|]*) \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		names = append(names, m[1])
		i := slices.IndexFunc(table, func(f Family) bool { return f.Name == m[1] })
		if i < 0 {
			t.Errorf("docs/metrics.md: there is no %s", m[1])
			continue
		}
		f := table[i]
		labels := "`" + strings.Join(f.Labels, "`, `") + "`"
		if len(f.Labels) == 0 {
			labels = "–"
		}
		if m[2] != f.Type || m[3] != labels || m[4] != f.Help {
			t.Errorf("docs/metrics.md: want | `%s` | %s | %s | %s |", f.Name, f.Type, labels, f.Help)
		}
	}
	for _, f := range table {
		if !slices.Contains(names, f.Name) {
			t.Errorf("docs/metrics.md has no row\n| `%s` | %s | `%s` | %s |", f.Name, f.Type, strings.Join(f.Labels, "`, `"), f.Help)
		}
	}
	for _, m := range regexp.MustCompile(`caisson_[a-z_]+`).FindAllString(string(doc), -1) {
		if !slices.Contains(names, m) {
			t.Errorf("docs/metrics.md speaks of %s, which there is not", m)
		}
	}
}
