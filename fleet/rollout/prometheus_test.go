// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/freeport"
	"github.com/caisson-os/caisson/test/require"
)

// exporter is what a Prometheus scrapes: the latency of each node, and how often that changed.
type exporter struct {
	mu     sync.Mutex
	values map[string]float64
	round  int
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(w, "round %d\n", e.round)
	for name, value := range e.values {
		fmt.Fprintf(w, "latency{node=%q} %g\n", name+":9100", value)
	}
}

// prometheus runs one that scrapes an exporter ten times a second, and returns its URL and process.
func prometheus(t *testing.T, of http.Handler) (string, *os.Process) {
	t.Helper()
	require.Tool(t, "prometheus")
	s := httptest.NewServer(of)
	t.Cleanup(s.Close)
	at, dir := freeport.Keep(t), t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, "global: {scrape_interval: 100ms}\nscrape_configs: [{job_name: nodes, static_configs: [{targets: [%q]}]}]\n", s.Listener.Addr()), 0o600))
	cmd := exec.CommandContext(t.Context(), "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at)
	out := &strings.Builder{}
	cmd.Stderr = out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Log(out)
		}
	})
	return "http://" + at, cmd.Process
}

// seen waits until the scrapes of all of the last while have the latest values.
func (e *exporter) seen(t *testing.T, at string) {
	t.Helper()
	e.mu.Lock()
	want := fmt.Sprint(e.round)
	e.mu.Unlock()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); <-tick.C {
		resp, err := http.Get(at + "/api/v1/query?query=" + url.QueryEscape("min_over_time(round[1500ms]) + 0 * "+
			"(count_over_time(round[1500ms]) > 3) + 0 * (min_over_time(up[1500ms]) == 1)")) // a scrape that comes late leaves a gap
		if err != nil {
			continue // it starts
		}
		var answer struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		_ = resp.Body.Close() // only read
		if r := answer.Data.Result; err == nil && len(r) == 1 && r[0].Value[1] == want {
			return
		}
	}
	t.Fatalf("Prometheus has not scraped round %s", want)
}

// A real Prometheus sees that a rack is slower by a fifth, and its numbers halt the rollout; what
// it cannot answer holds.
func TestRealPrometheus(t *testing.T) {
	require.Slow(t)
	e := &exporter{}
	at, process := prometheus(t, e)
	c, err := analysis.Open(at)
	must(t, err)
	for name, rule := range map[string]string{"waves": rackByRack, "strategy": byRackToo} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, layout(t), 12, strings.Replace(rule, "for: 2m", "for: 1s", 1))
			f.measure = func(ctx context.Context, a spec.Analysis, _ time.Time) (analysis.Measured, error) {
				values := map[string]float64{}
				for name, n := range f.nodes {
					values[name] = rackOne(n)
				}
				e.mu.Lock()
				if !maps.Equal(values, e.values) {
					e.values = values
					e.round++
				}
				e.mu.Unlock()
				e.seen(t, at)
				return c.Measure(ctx, a, time.Now())
			}
			_, err := f.start("2")
			must(t, err)
			err = f.run()
			if !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "rack r1: the mean of 2 nodes is 0.24, that of 6 others is 0.2; worse is > 1.1 ×, for 1s") &&
				!strings.Contains(err.Error(), "wave 1-r1: analysis \"latency\": the mean of 4 nodes is 0.24, that of 4 others is 0.2; worse is > 1.1 ×, for 1s") {
				t.Errorf("ended with %v", err)
			}
		})
	}
	nodes, others := []string{"n00000", "n00003"}, []string{"n00001", "n00004"}
	for query, want := range map[string]string{
		"latency > 0":              "",
		"latency * NaN":            "node n00000 has the value NaN",
		"latency / 0":              "node n00000 has the value +Inf",
		"latency_of_another":       "0 of 2 nodes have a value, 2 must",
		"latency{node=~'n.*0:.*'}": "1 of 2 nodes have a value, 2 must",
		"latency +":                "parse error",
		"1":                        `a series has no label "node"`,
		"latency or label_replace(latency, 'other', 'x', '', '')": "has two series",
	} {
		a := spec.Analysis{Query: query, Label: "node", Of: spec.OfWave, Against: spec.AgainstRest, Worse: "> 9 ×", For: 1, AtLeast: 2}
		m, err := c.Measure(t.Context(), a, time.Now())
		if err != nil {
			m.Trouble = err.Error()
		}
		worse, holds := analysis.Judge(a, m, nodes, others)
		if worse != "" || want == "" && holds != "" || !strings.Contains(holds, want) {
			t.Errorf("%s: worse %q, holds %q", query, worse, holds)
		}
	}
	// One that is stopped answers no more in time, and one that was killed not at all.
	f := newFleet(t, layout(t), 12, rackByRack)
	f.measures(func(*node) float64 { return math.NaN() }) // until all of a wave have soaked
	_, err = f.start("2")
	must(t, err)
	f.steps(10)
	for _, s := range []struct {
		signal syscall.Signal
		until  int // what the process has come to when all its threads have heard
		says   string
	}{{syscall.SIGSTOP, unix.WSTOPPED, "deadline exceeded"}, {syscall.SIGKILL, unix.WEXITED | unix.WNOWAIT, "connect"}} {
		must(t, process.Signal(s.signal))
		must(t, unix.Waitid(unix.P_PID, process.Pid, nil, s.until, nil))
		f.measure = func(ctx context.Context, a spec.Analysis, _ time.Time) (analysis.Measured, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return c.Measure(ctx, a, time.Now())
		}
		if _, d, err := f.driver().Step(t.Context()); err != nil || d.Act != Wait || !strings.Contains(d.Reason, "holds: ask Prometheus: ") || !strings.Contains(d.Reason, s.says) {
			t.Errorf("%s: %s %q, %v", s.signal, d.Act, d.Reason, err)
		}
	}
	f.measures(func(*node) float64 { return 0.2 })
	must(t, f.finish())
}
