// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items"
	scripts "github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/nics"
	"github.com/caisson-os/caisson/bootagent/items/perm"
	"github.com/caisson-os/caisson/bootagent/items/tunable"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// What the items do on a node: in directories that stand for its files, or in
// namespaces.

// place is a root for items, and their journal.
type place struct {
	*probe
	root    string
	scopes  item.Scopes
	journal *journal.Journal
}

func newPlace(p *probe) *place {
	p.Helper()
	at := &place{probe: p, root: fakeRoot(p.T, spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness"}, {Key: "kernel/panic"}}}), scopes: itemtest.Scopes}
	for _, dir := range []string{"etc/security/limits.d", "etc/sysctl.d", "etc/systemd/system"} {
		p.must(os.MkdirAll(filepath.Join(at.root, dir), 0o755))
	}
	at.write("vm/swappiness", "60")
	at.write("kernel/panic", "0")
	at.open()
	return at
}

// open begins with the journal as another process of the agent would.
func (at *place) open() {
	at.Helper()
	if at.journal != nil {
		at.must(at.journal.Close())
	}
	var err error
	at.journal, err = journal.Open(filepath.Join(at.root, "state"), at.scopes)
	at.must(err)
	at.Cleanup(func() { _ = at.journal.Close() }) // the test is over
}

func (at *place) write(key, value string) {
	at.Helper()
	at.must(os.WriteFile(filepath.Join(at.root, "proc/sys", key), []byte(value+"\n"), 0o644))
}

func (at *place) value(key string) string {
	at.Helper()
	text, err := os.ReadFile(filepath.Join(at.root, "proc/sys", key))
	at.must(err)
	return strings.TrimSpace(string(text))
}

// table returns the items for a conf of a Site.
func (at *place) table(conf string) []item.Item {
	at.Helper()
	dir := func(name string) string { return filepath.Join(at.root, name) }
	return items.Table(at.items(hosts+conf), items.Options{Journal: at.journal, Scopes: at.scopes, Proc: dir("proc"), Etc: dir("etc"),
		Sys: dir("sys"), Lib: dir("lib"), Dev: dir("dev"), State: dir("state"), Log: at.Logf})
}

func (at *place) pass(conf string) items.Result {
	at.Helper()
	return items.Reconcile(at.Context(), at.table(conf), at.journal)
}

// effects is a directory that scripts write to.
func (at *place) effects() string { return at.TempDir() }

func lines(name string) int {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}

func setuidModes(p *probe) {
	dir := p.TempDir()
	tool := filepath.Join(dir, "tool")
	p.must(os.WriteFile(tool, nil, 0o700))
	at := newPlace(p)
	r := at.pass("conf: {perm: {paths: [{path: " + tool + ", permissions: '4755'}, {path: " + dir + ", permissions: '1777'}]}}\n")
	p.must(r.Err)
	p.equal("mode of a file on a node", uint32(0o4755), stat(p, tool))
	p.equal("mode of a directory on a node", uint32(0o1777), stat(p, dir))
	bakedMode(p)
}

func copiedModes(p *probe) {
	file := filepath.Join(p.TempDir(), "f")
	p.must(os.WriteFile(file, nil, 0o600))
	p.must(os.Chmod(file, 0o640))
	p.must(newPlace(p).pass("conf: {perm: {paths: [{path: " + file + ", permissions: 'u=g'}]}}\n").Err)
	p.equal("u=g", uint32(0o440), stat(p, file))
}

func haltsForGood(p *probe) {
	at := newPlace(p)
	ran := filepath.Join(at.effects(), "ran")
	conf := "conf:\n  exec:\n    a: {data: \"#!/bin/sh\\nexit 1\\n\", rerun_policy: once_successfully, retry_interval: 3600, blocking_policy: foreground_halt_pod_on_failure}\n" +
		"    b: {data: \"#!/bin/sh\\ntouch " + ran + "\\n\", rerun_policy: never}\n"
	for n := range 3 {
		r := at.pass(conf)
		waits := false
		for _, d := range of(r.Drift, "exec") {
			waits = waits || d.Key == "b" && d.Action == spec.ActionDefer && strings.Contains(d.Reason, `waits for "a" to succeed`)
		}
		p.holds(fmt.Sprint("pass ", n), waits, "%+v", r.Drift)
	}
	p.equal("runs of the script behind", 0, lines(ran))
}

func failureTakesNothingBack(p *probe) {
	at := newPlace(p)
	at.pass("conf: {sysctl: {vm.swappiness: 10}}\n")
	next := "conf:\n  sysctl: {vm.swappiness: 20}\n  exec: {a: {data: \"#!/bin/sh\\nexit 1\\n\", rerun_policy: once_successfully, retry_interval: 3600}}\n"
	r := items.Transact(at.Context(), at.table(next), at.table("conf: {sysctl: {vm.swappiness: 10}}\n"), at.journal, nil)
	p.holds("the change", r.Err == nil && !r.RolledBack, "%v", r.Err)
	p.equal("health", spec.HealthDegraded, r.Health)
	p.equal("the setting beside the script", "20", at.value("vm/swappiness"))
}

func alwaysKeepsPace(p *probe) {
	at := newPlace(p)
	const conf = "conf: {exec: {a: {data: \"#!/bin/sh\\n\"}}}\n"
	p.must(at.pass(conf).Err)
	records, err := filepath.Glob(at.root + "/state/exec/*/run.json")
	p.must(err)
	p.equal("scripts that ran", 1, len(records))
	text, err := os.ReadFile(records[0])
	p.must(err)
	var record map[string]any
	p.must(json.Unmarshal(text, &record))
	for _, c := range []struct {
		ago time.Duration
		due bool
	}{{10 * time.Second, false}, {70 * time.Second, true}} {
		record["start"] = time.Now().Add(-c.ago).UTC()
		p.must(os.WriteFile(records[0], item.Raw(record), 0o600))
		drift, err := items.Preview(at.Context(), at.table(conf), nil, nil)
		p.must(err)
		p.equal(fmt.Sprint("due ", c.ago, " after the last run"), c.due, len(of(drift, "exec")) == 1)
	}
	_, said := p.parse("site.yaml", hosts+conf)
	p.contains("what validate says", said, "warning every-minute", "a runs about once a minute, as in Divingbell")
}

func overBoots(p *probe) {
	at := newPlace(p)
	dir := at.effects()
	conf := "conf:\n  exec:\n    daily: {data: \"#!/bin/sh\\necho >>" + dir + "/daily\\n\", rerun_interval: 86400}\n" +
		"    counted: {data: \"#!/bin/sh\\necho >>" + dir + "/counted\\n\", rerun_max_count: 1}\n"
	for boot := range 3 {
		at.scopes = item.Scopes{Kernel: fmt.Sprint("boot-", boot), Root: fmt.Sprint("root-", boot), Disk: "disk"}
		at.open()
		p.must(at.pass(conf).Err)
	}
	p.equal("runs a day over three boots", 1, lines(dir+"/daily"))
	p.equal("runs of one that is counted by boot", 3, lines(dir+"/counted"))
}

func missingForLong(p *probe) {
	at := newPlace(p)
	r := at.pass("conf: {sysctl: {net.none.such: 1}}\n")
	p.equal("health at first", spec.HealthOK, r.Health)
	first := time.Now()
	r.Age(nil, first, 24*time.Hour)
	later := items.Look(at.Context(), at.table("conf: {sysctl: {net.none.such: 1}}\n"), nil)
	later.Age(r.Drift, first.Add(11*time.Minute), 24*time.Hour)
	p.equal("health after eleven minutes", spec.HealthDegraded, later.Health)
	p.documented("divingbell.md", "**What is not there yet is waited for.**", "After ten minutes the node is `degraded` and says so: a mistyped name is found then")
}

// cut is what a process that is killed leaves.
type cut struct{}

func cutThenChanged(p *probe) {
	const before = "conf:\n  sysctl: {vm.swappiness: 10, kernel.panic: 5}\n  limits: {a: {domain: '*', type: '-', item: nofile, value: 1}}\n"
	const after = "conf:\n  sysctl: {vm.swappiness: 20}\n  limits: {b: {domain: '*', type: '-', item: core, value: 0}}\n"
	for n := 1; ; n++ {
		at := newPlace(p)
		died := func() (died bool) {
			defer func() {
				if r := recover(); r != nil {
					if _, ok := r.(cut); !ok {
						panic(r)
					}
					died = true
				}
			}()
			items.Reconcile(&itemtest.Killer{Context: p.Context(), N: n, Die: func() { panic(cut{}) }}, at.table(before), at.journal)
			return false
		}()
		at.open()
		r := items.Transact(at.Context(), at.table(after), at.table(before), at.journal, nil)
		p.holds(fmt.Sprint("cut at ", n), r.Err == nil && r.Health == spec.HealthOK && len(r.Drift) == 0, "%+v", r)
		p.equal("what was wanted before only", "0", at.value("kernel/panic"))
		if !died {
			p.holds("points to cut at", n > 5, "%d", n)
			return
		}
	}
}

func goneFileGoneRule(p *probe) {
	file := filepath.Join(p.TempDir(), "f")
	p.must(os.WriteFile(file, nil, 0o600))
	at := newPlace(p)
	p.must(at.pass("conf: {perm: {paths: [{path: " + file + ", permissions: '0640'}]}}\n").Err)
	p.must(os.Remove(file))
	r := at.pass("conf: {}\n")
	p.holds("without file and rule", r.Err == nil && r.Health == spec.HealthOK && len(r.Drift) == 0, "%+v", r)
}

// card is an interface with the features of a newer kernel.
type card map[string]nics.FeatureState

func (c card) Index(name string) (int, error) {
	if name != "eth0" {
		return 0, nics.ErrMissing
	}
	return 1, nil
}
func (c card) Called(index int) string                               { return map[int]string{1: "eth0"}[index] }
func (c card) Features(string) (map[string]nics.FeatureState, error) { return maps.Clone(c), nil }
func (c card) Change(_ string, want map[string]bool) error {
	for name, on := range want {
		c[name] = nics.FeatureState{Changeable: true, Requested: on, Active: on}
	}
	return nil
}

func tsoOfNewKernels(p *probe) {
	on := nics.FeatureState{Changeable: true, Requested: true, Active: true}
	c := card{"tx-tcp-segmentation": on, "tx-tcp6-segmentation": on, "tx-tcp-accecn-segmentation": on, "rx-gro": on}
	it := nics.NewFeatures(p.items(hosts+"conf: {ethtool: {eth0: {tso: off}}}\n").Ethtool, nil, "", c, itemtest.Journal(p.T, p.TempDir()))
	drift, err := it.Check(p.Context())
	p.must(err)
	p.must(it.Apply(p.Context(), drift))
	for name, s := range c {
		p.equal(name, name == "rx-gro", s.Active)
	}
}

func ethtoolWords(p *probe) {
	c := card{"tx-tcp-segmentation": {Changeable: true, Requested: false, Active: true}, "highdma": {Requested: true, Active: true}}
	features := p.items(hosts + "conf: {ethtool: {eth0: {none-such: on, highdma: off, tx-tcp-segmentation: off}}}\n").Ethtool
	drift, err := nics.NewFeatures(features, nil, "", c, itemtest.Journal(p.T, p.TempDir())).Check(p.Context())
	p.must(err)
	var said strings.Builder
	for _, d := range drift {
		said.WriteString(d.Reason + "\n")
	}
	p.contains("messages", said.String(), "Could not find requested param none-such for eth0", "'eth0' does not permit changing the 'highdma' setting",
		"There is a conflict between settings chosen for this device")
	_, told := p.parse("site.yaml", hosts+"conf: {ethtool: {eth0: {tso: bogus}}}\n")
	p.contains("what validate says", told, "Expected 'on' or 'off', got 'bogus'")
}

func reusedInode(p *probe) {
	file := filepath.Join(p.TempDir(), "f")
	p.must(os.WriteFile(file, nil, 0o600))
	j := itemtest.Journal(p.T, p.TempDir())
	it := perm.New(p.items(hosts+"conf: {perm: {paths: [{path: "+file+", permissions: '0640'}]}}\n").Perm, "", j, p.Logf)
	drift, err := it.Check(p.Context())
	p.must(err)
	p.must(it.Apply(p.Context(), drift))
	e := j.Entries(perm.Name)[0]
	older := func(raw json.RawMessage, of ...string) json.RawMessage { // the same inode, of a file that was born before
		var v map[string]any
		p.must(json.Unmarshal(raw, &v))
		at := v
		for _, key := range of {
			at = at[key].(map[string]any)
		}
		if at["born"] == nil {
			require.Missing(p.T, "btime", "the file system of "+file+" keeps no time of birth")
		}
		at["born"] = at["born"].(float64) - 1e9
		return item.Raw(v)
	}
	e.Prior, e.Applied = older(e.Prior), older(e.Applied, "attr")
	p.must(perm.New(nil, "", j, p.Logf).Restore(p.Context(), []item.Entry{e}))
	p.equal("mode of the file that came after", uint32(0o640), stat(p, file))
}

func interfaceAgain(p *probe) {
	if !itemtest.InNamespaces(p.T, "ip") {
		p.elsewhere()
		return
	}
	link := func(args ...string) {
		if out, err := exec.Command("ip", append([]string{"link"}, args...)...).CombinedOutput(); err != nil {
			p.Fatalf("ip link %v: %v\n%s", args, err, out)
		}
	}
	const file = "/proc/sys/net/ipv4/conf/cs0/forwarding"
	set := func(value string) { p.must(os.WriteFile(file, []byte(value), 0)) }
	link("add", "cs0", "type", "veth", "peer", "name", "cs1")
	set("1")
	j := itemtest.Journal(p.T, p.TempDir())
	it := tunable.NewSysctl(p.items(hosts+"conf: {sysctl: {net.ipv4.conf.cs0.forwarding: 0}}\n").Sysctl, "/proc/sys", j)
	drift, err := it.Check(p.Context())
	p.must(err)
	p.must(it.Apply(p.Context(), drift))
	link("del", "cs0")
	link("add", "cs0", "type", "veth", "peer", "name", "cs1")
	set("0")
	p.must(tunable.NewSysctl(nil, "/proc/sys", j).Restore(p.Context(), j.Entries(tunable.SysctlName)))
	text, err := os.ReadFile(file)
	p.must(err)
	p.equal("the other interface's value", "0\n", string(text))
}

func firstValue(p *probe) {
	at := newPlace(p)
	at.pass("conf: {sysctl: {vm.swappiness: 60}}\n") // which it is
	at.write("vm/swappiness", "5")
	r := at.pass("conf: {sysctl: {vm.swappiness: 60}}\n")
	p.equal("corrections", 1, len(r.Changes))
	at.write("vm/swappiness", "7")
	at.pass("conf: {}\n")
	p.equal("after it left the config", "60", at.value("vm/swappiness"))
}

func laterFile(p *probe) {
	at := newPlace(p)
	p.must(os.WriteFile(filepath.Join(at.root, "etc/sysctl.d/99-x.conf"), []byte("vm.swappiness=90\n"), 0o644))
	at.pass("conf: {sysctl: {vm.swappiness: 10}}\n")
	at.write("vm/swappiness", "90") // somebody ran sysctl --system
	r := at.pass("conf: {sysctl: {vm.swappiness: 10}}\n")
	p.equal("the value", "10", at.value("vm/swappiness"))
	p.holds("what is recorded", len(r.Changes) == 1 && r.Changes[0].From == "90" && r.Changes[0].To == "10", "%+v", r.Changes)
	p.documented("divingbell.md", "another file of sysctl.d that sets the same key is put right at the next look, and that is recorded")
}

func nothingLeft(p *probe) {
	at := newPlace(p)
	p.must(at.pass("conf:\n  sysctl: {vm.swappiness: 10}\n  perm: {paths: []}\n").Err)
	for _, dir := range []string{"etc/sysctl.d", "etc/systemd/system"} {
		left, err := os.ReadDir(filepath.Join(at.root, dir))
		p.must(err)
		p.equal("files in "+dir, 0, len(left))
	}
	at.scopes.Kernel = "boot-2"
	at.open()
	at.write("vm/swappiness", "60")
	p.must(at.pass("conf: {sysctl: {vm.swappiness: 10}}\n").Err)
	p.equal("after the next boot", "10", at.value("vm/swappiness"))
	p.documented("divingbell.md", "**Nothing is left on the host** in `/etc/sysctl.d` or `/etc/systemd`: the agent sets everything at each boot, from what is signed.")
}

func ownDirectory(p *probe) {
	at := newPlace(p)
	dir := at.effects()
	p.must(at.pass("conf: {exec: {a: {data: \"#!/bin/sh\\npwd >" + dir + "/a\\n\", rerun_policy: never}, b: {data: \"#!/bin/sh\\npwd >" + dir + "/b\\n\", rerun_policy: never}}}\n").Err)
	a, err := os.ReadFile(dir + "/a")
	p.must(err)
	b, err := os.ReadFile(dir + "/b")
	p.must(err)
	p.holds("working directories", len(a) > 1 && string(a) != string(b), "%s%s", a, b)
	p.documented("divingbell.md", "| working directory | a directory a script |", "Scripts that hand files to each other name an absolute path")
}

func timeoutEndsAll(p *probe) {
	if !itemtest.InSystemd(p.T) {
		p.elsewhere()
		return
	}
	dir := p.TempDir()
	want := p.items(hosts + "conf: {exec: {a: {data: \"#!/bin/sh\\nsetsid sleep 300 &\\necho $! >" + dir + "/pid\\nsleep 300\\n\", timeout: 1, rerun_policy: never}}}\n").Exec
	it := scripts.New(want, scripts.Host{Dir: p.TempDir(), Runner: process.Service{}, Scopes: itemtest.Scopes,
		Journal: itemtest.Journal(p.T, p.TempDir()), Log: p.Logf})
	drift, err := it.Check(p.Context())
	p.must(err)
	p.must(it.Apply(context.WithoutCancel(p.Context()), drift))
	drift, err = it.Check(p.Context())
	p.must(err)
	p.holds("the script", len(drift) == 1 && strings.Contains(drift[0].Reason, "timeout"), "%+v", drift)
	pid, err := os.ReadFile(dir + "/pid")
	p.must(err)
	state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	p.holds("the child in a session of its own", err != nil || strings.Contains(string(state), ") Z "), "%s", state)
}
