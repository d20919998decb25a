// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// stubs are programs of a layer: they stand in for those of this machine, and note how
// they were called.
type stubs struct {
	process.Group
	dir string
	ran []string
}

func (s *stubs) Start(ctx context.Context, c process.Command) (string, error) {
	if _, err := os.Stat(s.dir + c.Args[0]); err == nil {
		c.Args = append([]string{s.dir + c.Args[0]}, c.Args[1:]...)
	}
	c.Env = append(c.Env, "PATH="+s.dir+"/usr/bin:"+os.Getenv("PATH"))
	id, err := s.Group.Start(ctx, c)
	s.ran = append(s.ran, id)
	return id, err
}

func (s *stubs) add(t *testing.T, program, script string) {
	t.Helper()
	name := s.dir + program
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s/called\n%s\n", program, s.dir, script)
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// outcome is how a run of a template ends.
type outcome struct {
	with   string // its parameters; DIR is a directory of the test
	beside string // fields of the operation
	prior  func(t *testing.T, dir string)
	state  spec.OperationState
	called string // programs of the layer, with arguments
	log    string // what it says
}

// templateRuns has rows for each template that comes with caisson.
var templateRuns = map[string][]outcome{
	"reboot-if-required@1": {
		{with: "flag: DIR/flag", beside: cronBeside, prior: touch("flag"), state: spec.OperationRunning, called: "/usr/bin/systemctl reboot"},
		{with: "flag: DIR/flag", beside: cronBeside, state: spec.OperationDone},
	},
	"reboot-if-required@2": {
		{with: "flag: DIR/flag", beside: cronBeside, prior: touch("flag"), state: spec.OperationRunning, called: "/usr/bin/caisson-agent reboot"},
		{with: "flag: DIR/flag", beside: cronBeside, state: spec.OperationDone},
	},
	"restart-service@1": {{with: "unit: nginx.service", beside: ", type: oneShot", state: spec.OperationDone, called: "/usr/bin/systemctl restart nginx.service"}},
	"fstrim@1":          {{beside: cronBeside, state: spec.OperationDone, called: "/usr/sbin/fstrim --listed-in /etc/fstab:/proc/self/mountinfo --verbose"}},
	"scrub@1": {
		{with: "target: /srv", beside: cronBeside, state: spec.OperationDone, called: "/usr/bin/btrfs scrub start -B /srv"},
		{with: "target: \"/srv/a b; touch c\"", beside: cronBeside, state: spec.OperationDone, called: "/usr/bin/btrfs scrub start -B /srv/a b; touch c"},
		{with: "target: /dev/md-that-is-not-there", beside: cronBeside, state: spec.OperationFailed},
	},
	"firmware-check@1": {
		{with: "{file: DIR/has, version: \"1.2\"}", beside: cronBeside, prior: write("has", "1.2\n"), state: spec.OperationDone},
		{with: "{file: DIR/has, version: \"1.3\"}", beside: cronBeside, prior: write("has", "1.2\n"), state: spec.OperationFailed, log: "says 1.2, wanted is 1.3"},
		{with: "{version: \"1.3\", file: DIR/none}", beside: cronBeside, state: spec.OperationFailed},
	},
	"rotate-cert@1": {
		{with: "{certificate: DIR/new.pem, renew: /usr/bin/renew}", beside: cronBeside, prior: certificate("new.pem", "30"), state: spec.OperationDone},
		{with: "{certificate: DIR/old.pem, renew: /usr/bin/renew}", beside: cronBeside, prior: certificate("old.pem", "10"), state: spec.OperationDone, called: "/usr/bin/renew DIR/old.pem"},
	},
	"sysctl-baseline@1": {
		{state: spec.OperationHolding, log: "fs/file-max=1048576 net/core/netdev_max_backlog=4096 net/core/somaxconn=4096 net/ipv4/tcp_max_syn_backlog=4096 vm/dirty_ratio=10 vm/swappiness=10"},
		{with: "{swappiness: 1, files: \"99\"}", state: spec.OperationHolding, log: "fs/file-max=99 net/core/netdev_max_backlog=4096 net/core/somaxconn=4096 net/ipv4/tcp_max_syn_backlog=4096 vm/dirty_ratio=10 vm/swappiness=1"},
	},
	"nic-tuning@1": {
		{with: "interface: eth1", state: spec.OperationHolding, log: "eth1/pause/autoneg=off eth1/pause/rx=off eth1/pause/tx=off eth1/ring/rx=1024 eth1/ring/tx=1024"},
		{with: "{interface: eth1, rx: 512, pause: on}", state: spec.OperationHolding, log: "eth1/pause/autoneg=off eth1/pause/rx=on eth1/pause/tx=on eth1/ring/rx=512 eth1/ring/tx=1024"},
	},
	"hold@1": {
		{with: "{release: DIR/go}", prior: touch("go"), state: spec.OperationDone},
		{with: "{release: DIR/go, for: 1d}", state: spec.OperationRunning},
	},
}

const cronBeside = ", schedule: {weekly: [mon, tue, wed, thu, fri, sat, sun], at: \"00:00\", timeZone: UTC}"

func touch(name string) func(*testing.T, string) { return write(name, "") }

func write(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func certificate(name, days string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		said, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a",
			"-keyout", os.DevNull, "-out", filepath.Join(dir, name), "-days", days).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
}

// TestStandardTemplates writes each template into a site, publishes it, and runs what
// a node is sent.
func TestStandardTemplates(t *testing.T) {
	page, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := exec.Command("sh", "-c", "cat ../../spec/site/maintenance/templates/*.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	var standard []string
	for _, m := range regexp.MustCompile(`(?m)^metadata: {name: (.+)}\nspec:\n  version: "(.+)"$`).FindAllSubmatch(all, -1) {
		standard = append(standard, fmt.Sprintf("%s@%s", m[1], m[2]))
	}
	if n := len(regexp.MustCompile(`(?m)^metadata:`).FindAll(all, -1)); n == 0 || n != len(standard) {
		t.Errorf("%d templates, of which %d names are read", n, len(standard))
	}
	for _, name := range standard {
		if len(templateRuns[name]) == 0 {
			t.Errorf("no test runs %s", name)
		}
		if short, _, _ := strings.Cut(name, "@"); !strings.Contains(string(page), "\n## "+short+"\n") {
			t.Errorf("docs/templates.md says nothing about %s", name)
		}
	}
	for name, runs := range templateRuns {
		if !slices.Contains(standard, name) {
			t.Errorf("there is no %s", name)
		}
		for i, run := range runs {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) { run.check(t, name) })
		}
	}
}

func (run outcome) check(t *testing.T, name string) {
	if run.state == spec.OperationHolding {
		run.checkRealtime(t, name)
		return
	}
	dir := t.TempDir()
	if run.prior != nil {
		run.prior(t, dir)
	}
	s := &stubs{dir: t.TempDir()}
	for _, program := range []string{"/usr/bin/systemctl", "/usr/bin/caisson-agent", "/usr/sbin/fstrim", "/usr/bin/btrfs", "/usr/bin/renew"} {
		s.add(t, program, "")
	}
	m := templated(t, name, strings.ReplaceAll(run.with, "DIR", dir), run.beside).Maintenance
	o := m.Operations[0]
	if !strings.HasPrefix(o.From, name+"@sha256:") || len(o.From) != len(name)+72 {
		t.Errorf("it is from %q", o.From)
	}
	now := time.Date(2026, 11, 2, 0, 0, 30, 0, time.UTC)
	if len(o.Runs) > 0 {
		now = o.Runs[0].Add(-time.Minute)
	}
	e := &operation.Engine{Dir: filepath.Join(dir, "ops"), Node: "n", Boot: "b", Remembers: true, Runner: s,
		Clock: operation.Clock{Now: func() time.Time { return now }, Synchronised: func() bool { return true }}, Record: func(string, spec.Operation, string) {}}
	if len(o.Runs) > 0 { // a node knows its times before they come
		if _, err := e.Look(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		now = o.Runs[0].Add(time.Second)
	}
	t.Cleanup(func() { // what is held is held for a day
		for _, id := range s.ran {
			if err := s.End(id); err != nil {
				t.Error(err)
			}
		}
	})
	var got spec.OperationStatus
	patience := 5 * time.Minute
	if run.state == spec.OperationRunning && run.called == "" { // nothing shows that it is held
		patience = 2 * time.Second
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		all, err := e.Look(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		got = all[0]
		if got.State != spec.OperationRunning || got.Detail == "the machine reboots" {
			break
		}
	}
	if got.State == spec.OperationScheduled { // of cron, that it was done
		got.State = spec.OperationDone
	}
	called, err := os.ReadFile(s.dir + "/called")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(run.called, "DIR", dir); got.State != run.state || strings.TrimSpace(string(called)) != want {
		t.Errorf("%+v, called %q; want %s and %q", got, called, run.state, want)
	}
	if run.log == "" {
		return
	}
	if text, err := os.ReadFile(got.Log); err != nil || !strings.Contains(string(text), run.log) {
		t.Errorf("it says %q, %v", text, err)
	}
}

// templated publishes one operation that is made of a template.
func templated(t *testing.T, name, with, beside string) *spec.Overlay {
	t.Helper()
	short, version, _ := strings.Cut(name, "@")
	if with != "" && !strings.HasPrefix(with, "{") {
		with = "{" + with + "}"
	}
	if with != "" {
		with = ", with: " + with
	}
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes: [{name: n}]\n---\n" +
		"apiVersion: caisson.dev/v1alpha1\nkind: NodeMaintenance\nmetadata: {name: m}\nspec:\n  windows: [always]\n" +
		"  operations:\n  - {name: o, template: {name: " + short + ", version: \"" + version + "\"}" + with + beside + "}\n"
	s, report := site.ParseAt(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC), fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if report.Err() != nil {
		t.Fatal(report.Problems)
	}
	o, err := s.Overlay("n", "")
	if err != nil {
		t.Fatal(err)
	}
	return o
}
