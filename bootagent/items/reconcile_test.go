// SPDX-License-Identifier: Apache-2.0

package items

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	execs "github.com/caisson-os/caisson/bootagent/items/exec"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// node is a small machine in a directory.
type node struct {
	signed  []spec.Exec // of every overlay that it had
	t       *testing.T
	root    string
	journal *journal.Journal
	said    []string
}

var testScopes = item.Scopes{Kernel: "boot-1", Root: "root-1", Disk: "disk-1"}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir()}
	for name, text := range map[string]string{
		"proc/self/mountinfo":         "22 1 0:21 / / rw,relatime - overlay overlay rw\n",
		"proc/sys/vm/swappiness":      "60\n",
		"proc/sys/vm/overcommit":      "0\n",
		"proc/sys/net/ipv4/tcp_rmem":  "4096\t131072\t6291456\n",
		"etc/security/limits.d/.keep": "",
		"srv/data":                    "",
	} {
		n.write(name, text)
	}
	n.reopen()
	return n
}

func (n *node) write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) read(name string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.root, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func (n *node) reopen() {
	n.t.Helper()
	if n.journal != nil {
		_ = n.journal.Close() // a process that has ended reports nothing
	}
	j, err := journal.Open(filepath.Join(n.root, "state/journal"), testScopes)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { j.Close() }) // the test is over
	n.journal = j
}

func (n *node) items(want spec.Items) []item.Item {
	n.signed = append(n.signed, want.Exec...)
	return Table(want, Options{
		Journal: n.journal, Scopes: testScopes,
		Proc: n.root + "/proc", Etc: n.root + "/etc", Dev: n.root + "/dev", State: n.root + "/state",
		Signed: func() (all []execs.Signed) {
			for _, w := range n.signed {
				all = append(all, execs.Signed{Script: w})
			}
			return all
		},
		Log: func(f string, a ...any) { n.said = append(n.said, fmt.Sprintf(f, a...)) },
	})
}

// snapshot is everything but the state directory.
func (n *node) snapshot() string {
	n.t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, n.root+"/")
		if name == "state" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&out, "%s %v %q\n", name, info.Mode(), data)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return out.String()
}

// full is a config with something of every kind that a directory can hold.
func (n *node) full() spec.Items {
	return spec.Items{
		Limits: []spec.Limit{{ID: "core", Domain: "*", Type: "hard", Item: "core", Value: "0"}},
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}, {Key: "net/ipv4/tcp_rmem", Value: "1 2 3"}},
		Perm:   &spec.Perm{Paths: []spec.PermPath{{Path: n.root + "/srv/data", Mode: "0600"}}},
		Exec:   []spec.Exec{{Name: "mark", Data: "echo ran >" + n.root + "/srv/mark\n", Revert: "rm -f " + n.root + "/srv/mark\n"}},
	}
}

func ok(t *testing.T, r Result) {
	t.Helper()
	if r.Err != nil || r.Health != spec.HealthOK || len(r.Drift) > 0 {
		t.Fatalf("result %+v", r)
	}
}

func TestApplyThenRestore(t *testing.T) {
	n := newNode(t)
	before := n.snapshot()
	planned, err := Preview(t.Context(), n.items(n.full()), nil, nil)
	if err != nil || len(planned) != 5 {
		t.Fatalf("preview %+v, %v; want five changes", planned, err)
	}
	if diff := cmp.Diff(before, n.snapshot()); diff != "" {
		t.Fatalf("preview wrote:\n%s", diff)
	}
	r := Reconcile(t.Context(), n.items(n.full()), n.journal)
	ok(t, r)
	applied := map[string]int{}
	for _, s := range r.Items {
		applied[s.Name] = s.Applied
	}
	if diff := cmp.Diff(map[string]int{"accounts": 0, "modules": 0, "swaps": 0, "mounts": 0, "limits": 1, "files": 0, "sysctl": 2, "sysfs": 0, "ethtool": 0, "nics": 0, "perm": 1, "units": 0, "service": 0, "exec": 1}, applied); diff != "" {
		t.Fatalf("applied (-want +got):\n%s", diff)
	}
	again := Reconcile(t.Context(), n.items(n.full()), n.journal)
	if len(again.Changes) != 0 {
		t.Errorf("a second run changed %+v", again.Changes)
	}
	if diff := cmp.Diff(again.Items, Look(t.Context(), n.items(n.full()), nil).Items); diff != "" {
		t.Errorf("who only looks counts otherwise (-run +look):\n%s", diff)
	}
	for _, s := range again.Items {
		if s.Applied != applied[s.Name] {
			t.Errorf("after a second run %d are as wanted of %+v", s.Applied, s)
		}
	}
	n.reopen()
	ok(t, Reconcile(t.Context(), n.items(spec.Items{}), n.journal))
	if diff := cmp.Diff(before, n.snapshot()); diff != "" {
		t.Fatalf("after everything left the config (-before +after):\n%s", diff)
	}
}

// At boot one item's failure stops nobody else.
func TestBootGoesOn(t *testing.T) {
	n := newNode(t)
	want := n.full()
	want.Sysctl = append(want.Sysctl, spec.Sysctl{Key: "vm/none", Value: "1"}, spec.Sysctl{Key: "../bad", Value: "1"})
	r := Reconcile(t.Context(), n.items(want), n.journal)
	if r.Health != spec.HealthDegraded || r.Err == nil || !strings.Contains(r.Err.Error(), "//.bad") {
		t.Fatalf("result %+v; want degraded by the bad key", r)
	}
	if n.read("proc/sys/vm/swappiness") != "10" || n.read("srv/mark") != "ran" {
		t.Fatal("the bad key stopped others")
	}
	if len(r.Drift) != 2 {
		t.Fatalf("drift %+v, want the bad and the deferred key", r.Drift)
	}
}

// Neither does a failing apply keep back what left the config, nor a failing
// restore what is new; and what could not be restored is tried again.
func TestRestoreAndApplyFailAlone(t *testing.T) {
	n := newNode(t)
	gate := n.root + "/srv/gate"
	ok(t, Reconcile(t.Context(), n.items(spec.Items{
		Limits: []spec.Limit{{ID: "core", Domain: "*", Type: "hard", Item: "core", Value: "0"}},
		Exec:   []spec.Exec{{Name: "stuck", Data: "true\n", Revert: "test -e " + gate + "\n"}},
	}), n.journal))
	next := spec.Items{
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}},
		Exec:   []spec.Exec{{Name: "fails", Data: "exit 1\n", Rerun: "never"}},
	}
	r := Reconcile(t.Context(), n.items(next), n.journal)
	if got := of(t, r, "exec").Error; r.Err == nil || !strings.Contains(got, `"stuck"`) || !strings.Contains(got, `"fails"`) {
		t.Fatalf("result %+v; want both failures", r)
	}
	if n.read("proc/sys/vm/swappiness") != "10" {
		t.Error("the new key was not set")
	}
	if _, err := os.Stat(n.root + "/etc/security/limits.d/60-caisson-core.conf"); !os.IsNotExist(err) {
		t.Errorf("the limit that left the config is still there: %v", err)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.reopen()
	if r = Reconcile(t.Context(), n.items(next), n.journal); r.Err != nil {
		t.Fatalf("the revert was not tried again: %v", r.Err)
	}
}

// of returns the status of one kind.
func of(t testing.TB, r Result, kind string) spec.ItemStatus {
	t.Helper()
	i := slices.IndexFunc(r.Items, func(s spec.ItemStatus) bool { return s.Name == kind })
	if i < 0 {
		t.Fatalf("no status of %s in %+v", kind, r.Items)
	}
	return r.Items[i]
}

func TestDeferredIsNoFailure(t *testing.T) {
	n := newNode(t)
	want := spec.Items{Sysctl: []spec.Sysctl{{Key: "net/netfilter/nf_conntrack_max", Value: "1048576"}}}
	r := Reconcile(t.Context(), n.items(want), n.journal)
	if r.Health != spec.HealthOK || r.Err != nil || len(r.Drift) != 1 || of(t, r, "sysctl").State != spec.ItemDeferred {
		t.Fatalf("result %+v", r)
	}
	n.write("proc/sys/net/netfilter/nf_conntrack_max", "262144\n") // its module came
	ok(t, Reconcile(t.Context(), n.items(want), n.journal))
	if got := n.read("proc/sys/net/netfilter/nf_conntrack_max"); got != "1048576" {
		t.Fatalf("value %s", got)
	}
}

func TestTransactRefusesBeforeItTouches(t *testing.T) {
	n := newNode(t)
	ok(t, Reconcile(t.Context(), n.items(n.full()), n.journal))
	before := n.snapshot()
	next := spec.Items{
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}},
		Limits: []spec.Limit{{ID: "bad", Domain: "*", Type: "firm", Item: "core", Value: "0"}},
	}
	r := Transact(t.Context(), n.items(next), n.items(n.full()), n.journal, nil)
	if r.Err == nil || r.RolledBack || !strings.Contains(r.Err.Error(), "nothing was changed") || !strings.Contains(r.Err.Error(), "firm") {
		t.Fatalf("result %+v", r)
	}
	if diff := cmp.Diff(before, n.snapshot()); diff != "" {
		t.Fatalf("it touched:\n%s", diff)
	}
}

// A live change that fails half-way leaves what was before it: also a key that
// was ours already, and one that the change had let go of.
func TestTransactTakesBack(t *testing.T) {
	n := newNode(t)
	previous := n.full()
	ok(t, Reconcile(t.Context(), n.items(previous), n.journal))
	before := n.snapshot()
	next := spec.Items{
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "30"}, {Key: "vm/overcommit", Value: "1"}}, // tcp_rmem left
		Exec:   []spec.Exec{{Name: "fails", Data: "exit 7\n", OnFailure: "rollback"}},
	}
	r := Transact(t.Context(), n.items(next), n.items(previous), n.journal, nil)
	if !r.RolledBack || r.Err == nil || !strings.Contains(r.Err.Error(), "exit status 7") {
		t.Fatalf("result %+v", r)
	}
	if r.Health != spec.HealthOK || len(r.Drift) > 0 {
		t.Fatalf("after it was taken back: %+v", r)
	}
	if diff := cmp.Diff(before, n.snapshot()); diff != "" {
		t.Fatalf("(-before +after):\n%s", diff)
	}
	n.reopen()
	ok(t, Reconcile(t.Context(), n.items(spec.Items{}), n.journal))
	if got := n.read("proc/sys/vm/swappiness"); got != "60" {
		t.Fatalf("the first original was lost: %s", got)
	}
}

// A script that fails is shown and takes nothing back, unless it asks for that:
// then the change waits until the script may be tried again.
func TestAFailingScriptTakesNothingBack(t *testing.T) {
	n := newNode(t)
	next := spec.Items{
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "30"}},
		Exec:   []spec.Exec{{Name: "fails", Data: "exit 7\n"}},
	}
	r := Transact(t.Context(), n.items(next), n.items(spec.Items{}), n.journal, nil)
	if r.Err != nil || r.Health != spec.HealthDegraded || n.read("proc/sys/vm/swappiness") != "30" {
		t.Fatalf("result %+v", r)
	}
	if got := of(t, r, "exec").Error; !strings.Contains(got, "exit 7") || !strings.Contains(got, "/log") {
		t.Errorf("status says %q", got)
	}
	n = newNode(t)
	next.Exec[0].OnFailure = "rollback"
	for _, want := range []string{"was taken back", "nothing was changed"} {
		r := Transact(t.Context(), n.items(next), n.items(spec.Items{}), n.journal, nil)
		if r.Err == nil || !strings.Contains(r.Err.Error(), want) || n.read("proc/sys/vm/swappiness") != "60" {
			t.Fatalf("want %s: %+v", want, r)
		}
	}
}

// A run of another config was killed when nothing was done yet. One apply of the
// next one is enough, also where both want the same.
func TestOneApplyAfterAKillIsEnough(t *testing.T) {
	n := newNode(t)
	next := n.full()
	next.Sysctl = append([]spec.Sysctl{{Key: "vm/overcommit", Value: "1"}}, next.Sysctl...)
	ok(t, Transact(t.Context(), n.items(next), n.items(n.full()), n.journal, nil))
	if got := n.read("proc/sys/vm/swappiness"); got != "10" {
		t.Errorf("swappiness %s", got)
	}
}

// A key that is as wanted has an original too: what somebody changes and the agent
// corrects is not it.
func TestTheOriginalIsWhatWasFirst(t *testing.T) {
	n := newNode(t)
	want := spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "60"}}}
	ok(t, Reconcile(t.Context(), n.items(want), n.journal))
	n.write("proc/sys/vm/swappiness", "99\n")
	ok(t, Reconcile(t.Context(), n.items(want), n.journal))
	n.reopen()
	ok(t, Reconcile(t.Context(), n.items(spec.Items{}), n.journal))
	if got := n.read("proc/sys/vm/swappiness"); got != "60" {
		t.Errorf("swappiness %s", got)
	}
}

// A file that is gone has no permissions to put back.
func TestARuleOfAMissingFileLeaves(t *testing.T) {
	n := newNode(t)
	ok(t, Reconcile(t.Context(), n.items(n.full()), n.journal))
	if err := os.Remove(n.root + "/srv/data"); err != nil {
		t.Fatal(err)
	}
	next := n.full()
	next.Perm = nil
	ok(t, Transact(t.Context(), n.items(next), n.items(n.full()), n.journal, nil))
}

// What is not put back, since it is not there any more, or is another one, is not a change.
func TestWhatIsNotPutBackIsNotAChange(t *testing.T) {
	for name, meddle := range map[string]func(n *node) error{
		"it is gone": func(n *node) error { return os.Remove(n.root + "/srv/data") },
		"it is another one": func(n *node) error {
			n.write("srv/new", "")
			return os.Rename(n.root+"/srv/new", n.root+"/srv/data")
		},
		"its key is gone": func(n *node) error { return os.RemoveAll(n.root + "/proc/sys/vm/swappiness") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			ok(t, Reconcile(t.Context(), n.items(n.full()), n.journal))
			if err := meddle(n); err != nil {
				t.Fatal(err)
			}
			next := n.full()
			next.Perm, next.Sysctl = nil, next.Sysctl[1:]
			gone := "perm"
			if strings.Contains(name, "key") {
				gone = "sysctl"
			}
			r := Transact(t.Context(), n.items(next), n.items(n.full()), n.journal, nil)
			ok(t, r)
			kinds := map[string]int{}
			for _, d := range r.Changes {
				kinds[d.Item]++
			}
			if kinds[gone] != 0 || kinds["perm"]+kinds["sysctl"] != 1 {
				t.Errorf("changes %+v", r.Changes)
			}
			if left := n.journal.Entries(gone); gone == "perm" && len(left) != 0 || gone == "sysctl" && len(left) != 1 {
				t.Errorf("entries are left: %+v", left)
			}
		})
	}
}

func TestTransactCommits(t *testing.T) {
	n := newNode(t)
	ok(t, Reconcile(t.Context(), n.items(n.full()), n.journal))
	next := spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "30"}}}
	ok(t, Transact(t.Context(), n.items(next), n.items(n.full()), n.journal, nil))
	if n.read("proc/sys/vm/swappiness") != "30" || n.read("proc/sys/net/ipv4/tcp_rmem") != "4096\t131072\t6291456" {
		t.Fatal("the change is not what it should be")
	}
}

// A script that failed long ago is not a reason to refuse every later change.
func TestOldFailureBlocksNoChange(t *testing.T) {
	n := newNode(t)
	previous := spec.Items{Exec: []spec.Exec{{Name: "fails", Data: "exit 7\n", Rerun: "never"}}}
	if r := Reconcile(t.Context(), n.items(previous), n.journal); r.Health != spec.HealthDegraded {
		t.Fatalf("result %+v", r)
	}
	next := previous
	next.Sysctl = []spec.Sysctl{{Key: "vm/swappiness", Value: "30"}}
	r := Transact(t.Context(), n.items(next), n.items(previous), n.journal, nil)
	if r.RolledBack || r.Err != nil || n.read("proc/sys/vm/swappiness") != "30" {
		t.Fatalf("result %+v", r)
	}
	if r.Health != spec.HealthDegraded || !strings.Contains(of(t, r, "exec").Error, "exit 7") {
		t.Fatalf("the failed script does not show: %+v", r)
	}
}

// What the node lacked before the change does not stand in its way: a key that the
// kernel refuses, a limit that is wrong, a value that someone changed by hand.
func TestOldTroubleBlocksNoChange(t *testing.T) {
	n := newNode(t)
	previous := n.full()
	previous.Limits = append(previous.Limits, spec.Limit{ID: "bad", Domain: "*", Type: "firm", Item: "core", Value: "0"})
	if r := Reconcile(t.Context(), n.items(previous), n.journal); r.Health != spec.HealthDegraded {
		t.Fatalf("result %+v", r)
	}
	n.write("proc/sys/vm/swappiness", "77\n")
	next := previous
	next.Sysctl = append([]spec.Sysctl{{Key: "vm/overcommit", Value: "1"}}, previous.Sysctl...)
	r := Transact(t.Context(), n.items(next), n.items(previous), n.journal, nil)
	if r.RolledBack || r.Err != nil || n.read("proc/sys/vm/overcommit") != "1" {
		t.Fatalf("result %+v", r)
	}
	if r.Health != spec.HealthDegraded || of(t, r, "limits").Error == "" {
		t.Fatalf("the wrong limit does not show: %+v", r.Items)
	}
	if got := n.read("proc/sys/vm/swappiness"); got != "10" {
		t.Errorf("when the change stood, the drift was not corrected: %s", got)
	}
}

func TestCancelledTransactIsTakenBack(t *testing.T) {
	n := newNode(t)
	before := n.snapshot()
	ctx, cancel := context.WithCancel(t.Context())
	next := n.full()
	next.Exec = []spec.Exec{{Name: "long", Data: "touch " + n.root + "/srv/started; exec sleep 300\n", Revert: "rm -f " + n.root + "/srv/started\n"}}
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(n.root + "/srv/started"); err == nil {
				cancel()
			}
		}
	}()
	r := Transact(ctx, n.items(next), n.items(spec.Items{}), n.journal, nil)
	if !r.RolledBack {
		t.Fatalf("result %+v", r)
	}
	if diff := cmp.Diff(before, n.snapshot()); diff != "" {
		t.Fatalf("(-before +after):\n%s", diff)
	}
}

// applied is the order of the table, as the page has it.
var applied = regexp.MustCompile(`in the order of the table: [a-z,\s]+\.`)

// Every kind under this directory is in the table, in the order that docs/items.md gives. With
// CAISSON_UPDATE the page gets it.
func TestTable(t *testing.T) {
	var names []string
	folders := map[string]bool{}
	for _, it := range Table(spec.Items{}, Options{}) {
		names = append(names, it.Name())
		folder, _ := itemtest.Suite(t, ".", it.Name())
		folders[folder] = true
	}
	const name = "../../docs/items.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want := "in the order of the table: " + strings.Join(names, ", ") + "."
	if shown := strings.Join(strings.Fields(string(applied.Find(page))), " "); shown != want && os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(name, applied.ReplaceAll(page, []byte(want)), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if shown != want {
		t.Errorf("docs/items.md: %s, want %s", shown, want)
	}
	suites, err := filepath.Glob("*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range suites {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "itemtest.Run(") && !folders[filepath.Dir(name)] {
			t.Errorf("%s runs the conformance suite and is of no kind in the table", name)
		}
	}
}

func TestWhatIsMissingForLongDegrades(t *testing.T) {
	begun := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	missing := func(since time.Time) []spec.Drift {
		return []spec.Drift{{Item: "sysctl", Key: "net/x/y", To: "1", Action: spec.ActionDefer, Reason: "there is no such key", Since: since}}
	}
	for _, tc := range []struct {
		name     string
		last     []spec.Drift
		up       time.Duration
		after    time.Duration
		degraded bool
		since    time.Duration
	}{
		{"new", nil, time.Hour, 0, false, 0},
		{"a moment", missing(begun), time.Hour, 9 * time.Minute, false, 0},
		{"long", missing(begun), time.Hour, 11 * time.Minute, true, 0},
		{"since before the clock was set", missing(begun.AddDate(-50, 0, 0)), time.Minute, 0, false, 0},
		{"since the future", missing(begun.Add(time.Hour)), time.Hour, time.Minute, false, time.Minute},
		{"it was there in between", []spec.Drift{{Item: "sysctl", Key: "net/x/y", Action: spec.ActionChange}}, time.Hour, time.Hour, false, time.Hour},
	} {
		r := Result{Health: spec.HealthOK, Drift: missing(time.Time{}), Items: []spec.ItemStatus{{Name: "sysctl", State: spec.ItemDeferred}}}
		r.Age(tc.last, begun.Add(tc.after), tc.up)
		if got := r.Health == spec.HealthDegraded && r.Items[0].State == spec.ItemDegraded && strings.Contains(r.Items[0].Error, `"net.x.y": there is no such key; for `); got != tc.degraded {
			t.Errorf("%s: degraded %v: %+v", tc.name, got, r)
		}
		if !r.Drift[0].Since.Equal(begun.Add(tc.since)) {
			t.Errorf("%s: since %v, want %v", tc.name, r.Drift[0].Since, begun.Add(tc.since))
		}
	}
	r := Result{Health: spec.HealthOK, Drift: []spec.Drift{{Item: "exec", Key: "bg", Action: spec.ActionDefer, Since: begun}}}
	r.Age(r.Drift, begun.Add(time.Hour), 2*time.Hour)
	if r.Health != spec.HealthOK {
		t.Error("a script that runs degrades the node")
	}
}
