// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// publishMeasured signs what publish does, and where metrics go.
func (m *machine) publishMeasured(generation uint64, swappiness string, metrics *spec.Metrics) {
	m.t.Helper()
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Agent: &spec.Agent{Metrics: metrics}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}}},
		sign.Predicate{Generation: generation})
	m.confirm(time.Now())
}

func (m *machine) read(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.root + name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(data)
}

// holds reports which lines a text lacks.
func holds(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func TestMetricsAreWritten(t *testing.T) {
	const file, other = "/srv/textfile/caisson.prom", "/srv/textfile/other.prom"
	m := newMachine(t)
	m.publishMeasured(1, "10", &spec.Metrics{File: file})
	m.boot()

	// What cannot be written is said, by those who only read, too.
	if st := m.sync(); st.Health != spec.HealthDegraded || !strings.Contains(st.HealthDetail, file) {
		t.Errorf("%s: %s", st.Health, st.HealthDetail)
	}
	n, err := Read(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	if st, err := n.look.Status(t.Context()); err != nil || st.Health != spec.HealthDegraded || !strings.Contains(st.HealthDetail, file) {
		t.Errorf("%v, %s: %s", err, st.Health, st.HealthDetail)
	}
	if err := os.MkdirAll(m.root+"/srv/textfile", 0o755); err != nil {
		t.Fatal(err)
	}
	if st := m.sync(); st.Health != spec.HealthOK {
		t.Errorf("%s: %s", st.Health, st.HealthDetail)
	}

	// What a boot sets is neither drift nor a correction.
	holds(t, m.read(file), "caisson_generation 1", `caisson_settings{kind="sysctl"} 1`, `caisson_drift_total{kind="sysctl"} 0`, `caisson_corrections_total{kind="sysctl"} 0`,
		`caisson_fetch_total{result="ok"} 2`, `caisson_health_state{state="ok"} 1`, `caisson_activity_state{state="idle"} 1`)
	m.swappiness("77")
	m.apply()
	holds(t, m.read(file), `caisson_drift_total{kind="sysctl"} 1`, `caisson_corrections_total{kind="sysctl"} 1`, `caisson_drift{kind="sysctl"} 0`)
	m.publishMeasured(2, "20", &spec.Metrics{File: file})
	m.sync()
	holds(t, m.read(file), "caisson_generation 2", `caisson_drift_total{kind="sysctl"} 1`, `caisson_corrections_total{kind="sysctl"} 1`)
	if got := m.read(paths.RunMetrics); got != m.read(file) {
		t.Errorf("what is answered is not what is written:\n%s", got)
	}

	// The file goes when another is wanted, or none.
	m.publishMeasured(3, "20", &spec.Metrics{File: other})
	m.sync()
	if m.read(file) != "" || m.read(other) == "" {
		t.Error("the file before is left, or the new one is missing")
	}
	m.publish(4, layerNamed("a"), "20")
	m.sync()
	if m.read(other) != "" || m.read(paths.RunMetrics) != "" {
		t.Error("metrics that nobody wants are left")
	}
	m.publishMeasured(5, "20", &spec.Metrics{File: file})
	m.sync()
	if n := m.open(); n.RestoreAll(t.Context()) != nil || n.Close() != nil || m.read(file) != "" {
		t.Error("restore left the file")
	}
}

// Drift that stays is counted once, not once a look.
func TestDriftIsCountedOnce(t *testing.T) {
	m := newMachine(t)
	m.publishMeasured(1, "10", &spec.Metrics{Listen: "127.0.0.1:1"})
	m.boot()
	m.apply()
	m.publishPaused(2, layerNamed("a"), "10", time.Time{})
	m.sync()
	m.swappiness("77")
	for range 3 {
		m.apply()
	}
	m.publishMeasured(3, "10", &spec.Metrics{Listen: "127.0.0.1:1"})
	m.sync()
	holds(t, m.read(paths.RunMetrics), `caisson_drift_total{kind="sysctl"} 1`)
}

// The service is told where to answer; that it cannot degrades the node.
func TestMetricsAreAnswered(t *testing.T) {
	m := newMachine(t)
	m.publishMeasured(1, "10", &spec.Metrics{Listen: "127.0.0.1:9469"})
	m.boot()
	var told []string
	fail := errors.New("address already in use")
	pass := func() *spec.Status {
		t.Helper()
		n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Metrics: func(address string) error { told = append(told, address); return fail }}), m.bootstrap())
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() // the test is over
		st, err := n.cycle.Sync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := pass(); st.Health != spec.HealthDegraded || !strings.Contains(st.HealthDetail, "in use") {
		t.Errorf("%s: %s", st.Health, st.HealthDetail)
	}
	fail = nil
	if st := pass(); st.Health != spec.HealthOK {
		t.Errorf("%s: %s", st.Health, st.HealthDetail)
	}
	m.publish(2, layerNamed("a"), "10")
	pass()
	if strings.Join(slices.Compact(told), " ") != "127.0.0.1:9469 " {
		t.Errorf("%q", told)
	}
}

// What no site may say is not done for a signature: it is said, and the rest holds.
func TestWhatNoSiteMayAskOfTheAgent(t *testing.T) {
	for name, c := range map[string]struct {
		agent spec.Agent
		want  string
	}{
		"a file of the system's": {spec.Agent{Metrics: &spec.Metrics{File: "/etc/passwd"}}, "must end in .prom"},
		"too often":              {spec.Agent{Poll: 1}, "not every 1 s"},
		"almost never":           {spec.Agent{Poll: 1 << 40}, "not every"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			o := spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}}, Agent: &c.agent}
			o.SetNeeds()
			m.Overlay(o, sign.Predicate{Generation: 1})
			m.boot()
			n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Metrics: func(address string) error {
				if address != "" {
					t.Errorf("it listens on %s", address)
				}
				return nil
			}}), m.bootstrap())
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close() // the test is over
			st, err := n.cycle.Sync(t.Context())
			if err != nil || st.Health != spec.HealthDegraded || !strings.Contains(st.HealthDetail, c.want) || m.swappiness("") != "10" {
				t.Errorf("%+v, %v", st, err)
			}
			if n.Poll() != 0 {
				t.Errorf("it asks every %s", n.Poll())
			}
			if _, err := os.Stat(m.root + "/etc/passwd"); err == nil {
				t.Error("metrics are written there")
			}
		})
	}
}
