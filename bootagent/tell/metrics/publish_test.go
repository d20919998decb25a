// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Where no site may ask for metrics, a signed overlay gets none.
func TestWanted(t *testing.T) {
	for name, c := range map[string]struct {
		agent *spec.Agent
		want  spec.Metrics
		wrong string
	}{
		"nothing is said":        {nil, spec.Metrics{}, ""},
		"of other things":        {&spec.Agent{Poll: 900}, spec.Metrics{}, ""},
		"a file":                 {&spec.Agent{Metrics: &spec.Metrics{File: "/srv/textfile/caisson.prom"}}, spec.Metrics{File: "/srv/textfile/caisson.prom"}, ""},
		"a file of the system's": {&spec.Agent{Metrics: &spec.Metrics{File: "/etc/passwd"}}, spec.Metrics{}, "must end in .prom"},
		"an open address":        {&spec.Agent{Metrics: &spec.Metrics{Listen: "0.0.0.0:9469"}}, spec.Metrics{}, "can be reached from other machines"},
		"nowhere":                {&spec.Agent{Metrics: &spec.Metrics{}}, spec.Metrics{}, "names no place to read them"},
	} {
		got, err := Wanted(&spec.Overlay{Agent: c.agent})
		if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// The service answers what is written, and neither is left when nobody wants it.
func TestPublish(t *testing.T) {
	root := t.TempDir()
	const file = "/srv/textfile/caisson.prom"
	read := func(name string) string {
		data, err := os.ReadFile(root + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(data)
	}
	if err := os.MkdirAll(root+paths.Run, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Publish(root, spec.Metrics{File: file}, []byte("one")); err == nil || !strings.Contains(err.Error(), file) || read(paths.RunMetrics) != "one" {
		t.Errorf("without a directory: %v, the service answers %q", err, read(paths.RunMetrics))
	}
	if err := os.MkdirAll(root+"/srv/textfile", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Publish(root, spec.Metrics{File: file}, []byte("two")); err != nil || read(file) != "two" || read(paths.RunMetrics) != "two" {
		t.Errorf("%v: %q, %q", err, read(file), read(paths.RunMetrics))
	}
	if err := errors.Join(Withdraw(root, file), Withdraw(root, file), Publish(root, spec.Metrics{}, nil)); err != nil || read(file) != "" || read(paths.RunMetrics) != "" {
		t.Errorf("%v: %q, %q", err, read(file), read(paths.RunMetrics))
	}
}

// Drift counts once, whether it stays, is corrected, or both.
func TestCounts(t *testing.T) {
	var c record.Counts
	a, b := spec.Drift{Item: "sysctl", Key: "a", Action: spec.ActionChange}, spec.Drift{Item: "mounts", Key: "b", Action: spec.ActionAdd}
	CountDrift(&c, []spec.Drift{a, {Item: "overlay", Key: "generation 2", Action: spec.ActionRefuse}, {Item: "nics", Key: "eth9", Action: spec.ActionDefer}}, nil)
	CountDrift(&c, []spec.Drift{a}, []spec.Drift{a})
	CountCorrections(&c, []spec.Drift{a, b}, []spec.Drift{a})
	if !maps.Equal(c.Drift, map[string]uint64{"sysctl": 1, "mounts": 1}) || !maps.Equal(c.Corrections, c.Drift) {
		t.Errorf("%+v", c)
	}
	CountFetch(&c, nil, time.Unix(7, 0))
	CountFetch(&c, errors.New("no route to host"), time.Unix(8, 0))
	CountFetch(&c, refusal.New(refusal.Rejected, "no"), time.Unix(9, 0))
	if !maps.Equal(c.Fetches, map[string]uint64{"ok": 1, "unreachable": 1, "refused": 1}) || c.Verified != 7 {
		t.Errorf("%+v", c)
	}
	for i, layer := range []string{"sha256:b", "sha256:b", "sha256:c", ""} {
		NoteArtifacts(&c, &spec.Status{Overlay: "sha256:a", Layer: layer}, time.Unix(int64(10+i), 0))
	}
	if c.Artifacts["overlay"] != (record.Artifact{Digest: "sha256:a", Since: 10}) || c.Artifacts["layer"] != (record.Artifact{Digest: "sha256:c", Since: 12}) {
		t.Errorf("%+v", c.Artifacts)
	}
}
